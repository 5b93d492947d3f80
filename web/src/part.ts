/** A device's part in a federation: invitations, and the node that the service runs. */

/** What an invitation asks for, in words, and what the device's limits would decline of it. */
export interface Asked {
  federation: string;
  server: string;
  asks: string[];
  declines: string[];
}

export interface Problem {
  error: string;
  next: string;
}

/** The accepted invitation, how the node is doing, and what has left the device since. */
export interface Taking {
  accepted: Asked;
  node: "off" | "waiting" | "connecting" | "connected" | "failed";
  problem: Problem | null;
  joined: boolean;
  paused: boolean;
  messages: number;
  uploads: number;
  round: number | null;
  time: number | null;
  /** Why the newest message was a refusal, if it was. */
  declined: string | null;
}

/** Missing: what has to be installed first. */
export type PartState = { missing: Problem | null } & (Taking | { accepted: null });
export type Change = "start" | "stop" | "pause" | "go on";

export interface Part {
  state(): Promise<PartState>;
  /** What an invitation asks for; nothing of it is kept. */
  read(text: string): Promise<Asked>;
  agree(text: string): Promise<PartState>;
  change(to: Change): Promise<PartState>;
  leave(): Promise<PartState>;
}

type Ask = <T>(verb: string, path: string, body?: unknown) => Promise<T>;

/** The part of a device that a service shows. */
export function partOf(ask: Ask): Part {
  return {
    state: () => ask("GET", "part"),
    read: (text) => ask("POST", "invitation", { text }),
    agree: (text) => ask("PUT", "invitation", { text }),
    change: (to) => ask("PUT", "part", { do: to }),
    leave: () => ask("DELETE", "invitation"),
  };
}
