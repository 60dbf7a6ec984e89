// How far each rank of a group came, laggards left. The bar is what it completed, the frame above what it issued.

const SKY_HEIGHT = 190;
const SKY_FOOT = 34;
const SKY_LEFT = 56;
const WIDEST_BAR = 64;

class Skyline {
  constructor(view) {
    this.view = view;
    this.canvas = document.getElementById("skyline-canvas");
    this.order = [];
    this.group = null;
    this.canvas.addEventListener("click", (event) => {
      const at = this.memberAt(event.clientX - this.canvas.getBoundingClientRect().left);
      if (at >= 0) view.select(view.indexOf.get(this.group.ranks[this.order[at]]));
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    tooltip(this.canvas, (x) => {
      const at = this.memberAt(x);
      if (at < 0) return null;
      const member = this.order[at];
      return [...describeRank(view, view.indexOf.get(this.group.ranks[member])), progressOf(this.group, member)];
    });
  }

  take(group) {
    this.group = group;
    this.order = byProgress(group);
    const known = this.order.filter((m) => group.completed[m] >= 0);
    const lowest = known.length ? group.completed[known[0]] : 0;
    this.high = Math.max(1, maximum(group.issued), maximum(group.completed));
    // Differences are what matters: the foot of the picture is a little below the slowest rank.
    this.low = Math.max(0, lowest - Math.max(3, Math.ceil((this.high - lowest) * 0.4)));
  }

  draw(colours) {
    const group = this.view.job.groups[this.view.group];
    if (group !== this.group) this.take(group);
    const width = roomFor(this.canvas);
    const context = sized(this.canvas, width, SKY_HEIGHT);
    this.step = Math.min(WIDEST_BAR, (width - SKY_LEFT) / this.order.length);
    this.drawAxis(context, colours, width);
    if (this.step >= 1) this.order.forEach((_, at) => this.drawBar(context, colours, at, at + 1));
    else this.drawPooled(context, colours, width - SKY_LEFT);
    context.globalAlpha = 1;
    this.drawSelected(context, colours);
  }

  y(seq) {
    const foot = SKY_HEIGHT - SKY_FOOT;
    return foot - Math.max(0, (seq - this.low) / (this.high - this.low)) * (foot - 14);
  }

  drawAxis(context, colours, width) {
    context.font = `11px ${FONT}`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillStyle = colours.faint;
    context.fillText("seq", SKY_LEFT - 8, SKY_HEIGHT - SKY_FOOT + 14);
    const slowest = this.group.completed[this.order.find((m) => this.group.completed[m] >= 0) ?? 0];
    const ticks = [...new Set([this.low, slowest, this.high])].filter((seq) => seq >= this.low);
    for (const seq of ticks) {
      context.fillStyle = colours.faint;
      context.fillText(number(seq), SKY_LEFT - 8, this.y(seq));
      context.fillStyle = colours.line;
      context.fillRect(SKY_LEFT, Math.round(this.y(seq)), width - SKY_LEFT, 1);
    }
  }

  /** One bar for members order[from] up to order[to]: the least of them, in the worst state. */
  drawBar(context, colours, from, to) {
    const { group, order, view, step } = this;
    const member = order[from];
    let worst = -1;
    let passes = false;
    for (let at = from; at < to; at++) {
      const index = view.indexOf.get(group.ranks[order[at]]);
      const state = view.job.state[index];
      if (worst < 0 || STATES[state].worst > STATES[worst].worst) worst = state;
      passes ||= view.passing[index] === 1;
    }
    const x = SKY_LEFT + from * step;
    const wide = Math.max(1, (to - from) * step - (step > 6 ? 3 : step > 3 ? 1 : 0));
    const foot = SKY_HEIGHT - SKY_FOOT;
    context.globalAlpha = passes ? 1 : DIM;
    const top = group.completed[member] < 0 ? foot - 6 : Math.min(foot - 2, this.y(group.completed[member]));
    context.fillStyle = colours.states[worst];
    context.fillRect(x, top, wide, foot - top);
    if (group.issued[member] > group.completed[member]) {
      context.strokeStyle = colours.ink;
      context.lineWidth = 1;
      context.setLineDash(wide > 3 ? [3, 2] : []);
      const above = this.y(group.issued[member]);
      if (wide > 3) context.strokeRect(x + 0.5, above + 0.5, wide - 1, top - above);
      context.setLineDash([]);
    }
    if (wide >= 10) this.letterBelow(context, colours, member, worst, x + wide / 2, wide);
  }

  letterBelow(context, colours, member, state, x, wide) {
    const suspect = this.view.job.suspect[this.view.indexOf.get(this.group.ranks[member])];
    context.fillStyle = colours.ink;
    context.textAlign = "center";
    context.textBaseline = "top";
    context.font = `${suspect ? 800 : 600} 11px ${FONT}`;
    context.fillText(STATES[state].letter, x, SKY_HEIGHT - SKY_FOOT + 4);
    if (wide < 24) return;
    context.fillText(String(this.group.ranks[member]), x, SKY_HEIGHT - SKY_FOOT + 18);
    if (suspect) context.fillRect(x - wide / 2, SKY_HEIGHT - 3, wide, 3);
  }

  drawPooled(context, colours, pixels) {
    const total = this.order.length;
    for (let x = 0; x < pixels; x++) {
      const from = Math.floor((x * total) / pixels);
      const to = Math.max(from + 1, Math.floor(((x + 1) * total) / pixels));
      this.drawBar(context, colours, from, to);
    }
  }

  drawSelected(context, colours) {
    const rank = this.view.job.ranks[this.view.selected];
    const at = this.order.findIndex((member) => this.group.ranks[member] === rank);
    if (at < 0) return;
    const x = SKY_LEFT + (at + 0.5) * this.step;
    context.fillStyle = colours.accent;
    context.beginPath();
    context.moveTo(x - 6, 0);
    context.lineTo(x + 6, 0);
    context.lineTo(x, 9);
    context.fill();
  }

  memberAt(x) {
    const at = Math.floor((x - SKY_LEFT) / this.step);
    return at >= 0 && at < this.order.length ? at : -1;
  }

  key(event) {
    const rank = this.view.job.ranks[this.view.selected];
    const at = this.order.findIndex((member) => this.group.ranks[member] === rank);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: this.order.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const kept = Math.min(Math.max(to, 0), this.order.length - 1);
    this.view.select(this.view.indexOf.get(this.group.ranks[this.order[kept]]));
  }
}

function maximum(values) {
  return values.reduce((most, value) => Math.max(most, value), -Infinity);
}

function byProgress(group) {
  return Array.from(group.ranks, (_, m) => m).sort(
    (a, b) => group.completed[a] - group.completed[b] || group.issued[a] - group.issued[b] || group.ranks[a] - group.ranks[b],
  );
}

function progressOf(group, member) {
  const completed = group.completed[member];
  const issued = group.issued[member];
  if (completed < 0 && issued < 0) return "nothing recorded in this group";
  return `completed ${completed < 0 ? "none" : number(completed)}, issued ${issued < 0 ? "none" : number(issued)}`;
}

function lateSays(group, late, farthest) {
  const names = Ranks.of(late.map((m) => group.ranks[m])).named();
  const same = late.every((m) => group.issued[m] === group.issued[late[0]]) && group.issued[late[0]] >= 0;
  if (!same) return `${names} issued less than seq ${number(farthest)}`;
  return `${names} issued up to seq ${number(group.issued[late[0]])}, the others up to ${number(farthest)}`;
}

function skylineSays(view) {
  const group = view.job.groups[view.group];
  const order = byProgress(group).filter((m) => group.completed[m] >= 0 || group.issued[m] >= 0);
  const known = new Set(order);
  const unknown = Array.from(group.ranks).filter((_, m) => !known.has(m));
  const missing = unknown.length ? `${Ranks.of(unknown).named()} left no record; of the others, ` : "";
  if (!order.length) return `${groupTitle(group)}: no rank left a record of its progress.`;
  const most = group.completed[order[order.length - 1]];
  const behind = order.filter((m) => group.completed[m] < most).map((m) => group.ranks[m]);
  const farthest = maximum(group.issued);
  const late = order.filter((m) => group.issued[m] < farthest);
  const done = behind.length
    ? `${Ranks.of(behind).named()} completed less than seq ${number(most)}`
    : `all completed seq ${number(most)}`;
  const began = late.length
    ? lateSays(group, late, farthest)
    : farthest > most
      ? `all issued seq ${number(farthest)}`
      : "nothing is pending";
  return `${groupTitle(group)}: ${missing}${done}; ${began}.`;
}
