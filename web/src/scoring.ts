/**
 * What a model can do, and how lists are made from its scores. Python does the same in solera/device/recommending.py.
 */

/** What a score is the sum of: the item's own popularity, and a part of every item of the history. */
export interface Parts {
  popular: number;
  ofHistory: Float64Array;
}

export interface Model {
  /** Scores of all items for a history of distinct rows, oldest first. */
  scores(history: number[]): Float64Array;
  /** What an item's score is the sum of, or null if it is no such sum. */
  parts(history: number[], item: number): Parts | null;
  /** How similar all items are to one item. */
  similar(item: number): Float64Array;
}

/** Somebody to recommend to: distinct rows, those of the history oldest first. */
export interface Person {
  history: number[];
  disliked: number[];
}

const DISLIKE = 0.5; // of the distance between the best score and the mean: what the item most like a disliked one loses
export const LEAST = 1e-12; // standard deviation, so that equal scores become 0

/** Scores of all items. What is like a disliked item loses as much as it is like it. */
export function scoresFor(model: Model, { history, disliked }: Person): Float64Array {
  let scores = model.scores(history);
  const most = DISLIKE * (scores.reduce((a, b) => Math.max(a, b), -Infinity) - mean(scores));
  for (const row of disliked) {
    const like = model.similar(row).map((each, other) => (other === row ? 0 : Math.max(each, 0)));
    const top = Math.max(like.reduce((a, b) => Math.max(a, b), 0), LEAST);
    scores = scores.map((score, other) => score - (most * like[other]!) / top);
  }
  return scores;
}

/** Scores for people together: in standard deviations, those of the person who likes an item least. */
export function together(scores: Float64Array[]): Float64Array {
  const [first, ...others] = scores.length > 1 ? scores.map(standardised) : scores;
  return others.reduce((least, each) => least.map((score, row) => Math.min(score, each[row]!)), first!);
}

export function standardised(scores: Float64Array): Float64Array {
  const middle = mean(scores);
  const square = scores.reduce((sum, each) => sum + (each - middle) ** 2, 0) / scores.length;
  const deviation = Math.max(Math.sqrt(square), LEAST);
  return scores.map((each) => (each - middle) / deviation);
}

function mean(scores: Float64Array): number {
  return scores.reduce((sum, each) => sum + each, 0) / scores.length;
}

/** The best rows by score, best first, of those that may be shown. */
export function best(scores: Float64Array, shown: (row: number) => boolean, count: number): number[] {
  const rows: number[] = [];
  for (let row = 0; row < scores.length; row++) if (shown(row)) rows.push(row);
  return rows.sort((a, b) => scores[b]! - scores[a]! || a - b).slice(0, count);
}
