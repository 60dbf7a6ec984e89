// A set of ranks, as ranges: a job of 10,000 names most of its ranks in every moment.

class Ranks {
  /** `{count, ranges: "0-6,8,16-128/8"}`; ends in ",..." where there are more than the report carries. */
  static read({ count, ranges }) {
    const runs = ranges.split(",").filter((run) => run && run !== "...");
    return new Ranks(
      count,
      runs.map((run) => {
        const [, first, last, step] = /^(\d+)(?:-(\d+)(?:\/(\d+))?)?$/.exec(run);
        return [Number(first), Number(last ?? first), Number(step ?? 1)];
      }),
    );
  }

  static of(ranks) {
    const sorted = [...ranks].sort((a, b) => a - b);
    const runs = [];
    for (const rank of sorted) {
      const run = runs[runs.length - 1];
      if (run && run[1] + 1 === rank) run[1] = rank;
      else runs.push([rank, rank, 1]);
    }
    return new Ranks(sorted.length, runs);
  }

  constructor(count, runs) {
    this.count = count;
    this.runs = runs;
  }

  get first() {
    return this.runs[0][0];
  }

  has(rank) {
    return this.runs.some(([first, last, step]) => first <= rank && rank <= last && (rank - first) % step === 0);
  }

  /** Whether the test holds for any of them. */
  some(test) {
    return this.runs.some(([first, last, step]) => {
      for (let rank = first; rank <= last; rank += step) if (test(rank)) return true;
      return false;
    });
  }

  /** The first few of them. */
  take(count) {
    const taken = [];
    this.some((rank) => taken.push(rank) >= count);
    return taken;
  }

  /** What to search for to see only these; nothing where there are more than the report carries. */
  query() {
    const runs = this.runs.map(([first, last, step]) => (first === last ? first : `${first}-${last}${step === 1 ? "" : `/${step}`}`));
    return this.count && this.listed === this.count ? `rank:${runs.join(",")}` : "";
  }

  /** How many the runs hold. */
  get listed() {
    return this.runs.reduce((sum, [first, last, step]) => sum + Math.floor((last - first) / step) + 1, 0);
  }

  text(limit = 8) {
    const runs = this.runs.map(([first, last, step]) => {
      if (first === last) return String(first);
      return step === 1 ? `${first}-${last}` : `${first}-${last} by ${step}`;
    });
    if (runs.length <= limit && this.listed === this.count) return runs.join(", ");
    return `${runs.slice(0, limit).join(", ")} … (${number(this.count)} in all)`;
  }

  /** "rank 5", "ranks 1-3" */
  named() {
    if (!this.count) return "no rank";
    return `${this.count === 1 ? "rank" : "ranks"} ${this.text()}`;
  }
}
