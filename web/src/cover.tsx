/** A cover made from a title: two colours by its letters, and a shape by its genre. No picture is fetched. */

import type { Item } from "./device";

const COLOURS = [8, 28, 44, 95, 150, 172, 196, 214, 236, 262, 288, 318, 340]; // hues that look well beside each other

function hash(text: string): number {
  let found = 2166136261;
  for (const letter of text) found = Math.imul(found ^ letter.codePointAt(0)!, 16777619);
  return found >>> 0;
}

/** Numbers between 0 and 1, the same for the same title. */
function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const SHAPES = ["sci|tech|space", "crime|thriller|noir", "comed|music", "advent|western|war|history", "roman", "horror|myst", "drama|docu", "anim|child|fam|fant"];

type Draw = (next: () => number) => preact.JSX.Element[];

const times = (count: number, draw: (at: number) => preact.JSX.Element) => Array.from({ length: count }, (_, at) => draw(at));

const DRAWN: Draw[] = [
  (next) => {
    const [x, y, r] = [190 + 80 * next(), 50 + 30 * next(), 26 + 18 * next()]; // a planet and its orbits
    return [
      <circle cx={x} cy={y} r={r} />,
      ...times(3, (at) => <ellipse class="line" cx={x} cy={y} rx={r * (1.7 + 0.7 * at)} ry={r * (0.5 + 0.35 * at)} transform={`rotate(-18 ${x} ${y})`} />),
    ];
  },
  (next) => {
    const tilt = 60 + 40 * next(); // light through blinds
    return times(6, (at) => <polygon points={`${at * 62},0 ${at * 62 + 24},0 ${at * 62 + 24 - tilt},180 ${at * 62 - tilt},180`} />);
  },
  (next) => times(7, () => <circle cx={320 * next()} cy={110 * next()} r={8 + 22 * next()} />), // balloons
  (next) =>
    times(3, (at) => {
      const [first, second] = [70 + 30 * at - 50 * next(), 60 + 30 * at - 40 * next()]; // hills
      return <path d={`M0 ${first + 30} Q 80 ${first} 160 ${first + 28} T 320 ${second} V180 H0Z`} />;
    }),
  (next) => {
    const x = 170 + 90 * next(); // rings on water
    return times(5, (at) => <circle class="line" cx={x} cy="62" r={14 + 19 * at} />);
  },
  (next) =>
    times(9, (at) => {
      const height = 40 + 90 * next(); // a wood, or teeth
      return <polygon points={`${at * 40 - 26},0 ${at * 40 + 30},0 ${at * 40 + 2},${height}`} />;
    }),
  (next) => {
    const off = 30 * next(); // windows at night
    return times(24, (at) => <rect x={160 + 27 * (at % 6) - off} y={12 + 26 * Math.floor(at / 6)} width="17" height="18" opacity={next() > 0.45 ? 1 : 0.35} />);
  },
  (next) => times(40, (at) => <circle cx={16 + 32 * (at % 10)} cy={14 + 30 * Math.floor(at / 10)} r={3 + 8 * next()} />), // dots
];

export function Cover({ item }: { item: Item }) {
  const seed = hash(item.title);
  const hue = COLOURS[seed % COLOURS.length]!;
  const other = COLOURS[(COLOURS.indexOf(hue) + 2 + (seed % 3)) % COLOURS.length]!;
  const known = SHAPES.findIndex((words) => new RegExp(words, "i").test(item.genres[0] ?? ""));
  const draw = DRAWN[known >= 0 ? known : hash(item.genres[0] ?? item.title) % DRAWN.length]!;
  return (
    <svg class="cover" viewBox="0 0 320 180" preserveAspectRatio="xMidYMid slice" aria-hidden="true" style={{ "--one": `${hue}`, "--two": `${other}` }}>
      {draw(numbers(seed))}
    </svg>
  );
}
