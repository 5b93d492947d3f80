/**
 * Make a list more varied: the next film is the one with the best balance of how well it fits and how little it is
 * like those before it (maximal marginal relevance). Films are alike if they share genres, and if the same films of
 * the history speak for them.
 */

import type { Recommendation } from "./device";

export const CANDIDATES = 200; // films of which a varied list is made

/** The best of a list, ordered by score. `level` is from 0, which changes nothing, to 1. */
export function varied(found: Recommendation[], level: number, count: number): Recommendation[] {
  if (!level || !found.length) return found.slice(0, count);
  const [most, least] = [found[0]!.score, found[found.length - 1]!.score];
  const left = found.map((each) => ({ each, fit: most > least ? (each.score - least) / (most - least) : 1, like: 0 }));
  const chosen: Recommendation[] = [];
  const value = ({ fit, like }: { fit: number; like: number }) => (1 - level) * fit - level * like;
  while (left.length && chosen.length < count) {
    const at = left.reduce((best, other, place) => (value(other) > value(left[best]!) ? place : best), 0);
    const [next] = left.splice(at, 1);
    chosen.push(next!.each);
    for (const other of left) other.like = Math.max(other.like, alike(next!.each, other.each));
  }
  return chosen;
}

/** From 0 to 1: the mean of what genres and reasons say, as far as there are some. */
export function alike(one: Recommendation, other: Recommendation): number {
  const said: number[] = [];
  const [genres, others] = [one.item.genres, other.item.genres];
  if (genres.length && others.length) {
    const both = genres.filter((each) => others.includes(each)).length;
    said.push(both / (genres.length + others.length - both));
  }
  const [first, second] = [one, other].map(({ because }) => new Map(because?.reasons.map(({ item, part }) => [item.id, part])));
  if (first!.size && second!.size) said.push(cosine(first!, second!));
  return said.length ? said.reduce((sum, each) => sum + each, 0) / said.length : 0;
}

function cosine(one: Map<string, number>, other: Map<string, number>): number {
  const length = (each: Map<string, number>) => Math.hypot(...each.values());
  const product = [...one].reduce((sum, [item, part]) => sum + part * (other.get(item) ?? 0), 0);
  return product / (length(one) * length(other));
}
