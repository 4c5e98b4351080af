// Arithmetic of series: stacks, and the joining of what history says with what the stream adds.

/** Each series on top of those after it: the first is the whole, drawn first, and the later ones over it. A point that
 * no series knows stays unknown. */
export function stackUp(values: readonly (readonly (number | null)[])[]): (number | null)[][] {
  const out = values.map((v) => new Array<number | null>(v.length).fill(null))
  const length = values[0]?.length ?? 0
  for (let i = 0; i < length; i++) {
    let sum: number | null = null
    for (let s = values.length - 1; s >= 0; s--) {
      const v = values[s]![i]
      if (v != null) sum = (sum ?? 0) + v
      out[s]![i] = sum
    }
  }
  return out
}

/** Which area of a stack is at this height: the index of its series; -1: above all of them. `stacked` as stackUp() gives it. */
export function bandAt(stacked: readonly (readonly (number | null)[])[], index: number, y: number): number {
  let found = -1
  for (let s = 0; s < stacked.length; s++) if (y >= 0 && (stacked[s]![index] ?? 0) >= y) found = s
  return found
}

export interface Points {
  t: number[]
  /** As long as `t`, by name. */
  values: Record<string, (number | null)[]>
}

/** Without the points at the end that nothing is known of: steps that are not written down yet. */
function trimEnd(points: Points): Points {
  const lists = Object.values(points.values)
  let n = points.t.length
  while (n > 0 && lists.every((v) => v[n - 1] == null)) n--
  if (n === points.t.length) return points
  return {
    t: points.t.slice(0, n),
    values: Object.fromEntries(Object.entries(points.values).map(([name, v]) => [name, v.slice(0, n)])),
  }
}

/** `more` after `history`: only points later than its last known, and only within the last `span` seconds. */
export function joinPoints(history: Points, more: Points, span: number): Points {
  const base = trimEnd(history)
  const last = base.t[base.t.length - 1] ?? -Infinity
  const later = more.t.findIndex((t) => t > last + 0.5)
  const t = later < 0 ? base.t.slice() : base.t.concat(more.t.slice(later))
  const end = t[t.length - 1] ?? 0
  const first = Math.max(
    0,
    t.findIndex((x) => x >= end - span),
  )
  const values: Points['values'] = {}
  for (const name of new Set([...Object.keys(base.values), ...Object.keys(more.values)])) {
    const head = base.values[name] ?? new Array<number | null>(base.t.length).fill(null)
    const tail = later < 0 ? [] : (more.values[name] ?? new Array<number | null>(more.t.length).fill(null)).slice(later)
    values[name] = head.concat(tail).slice(first)
  }
  return { t: t.slice(first), values }
}

/** Seconds that a chart shows at least: less looks like a mistake. */
const SPAN_MIN = 60

/** The time to show of the last `span` seconds: all of it, or where less is known, from the first known point on. */
export function knownRange(points: Points, span: number): [number, number] | undefined {
  const lists = Object.values(points.values)
  const first = points.t.findIndex((_, i) => lists.some((v) => v[i] != null))
  const end = points.t[points.t.length - 1]
  if (end == null || first < 0) return undefined
  return [Math.min(Math.max(end - span, points.t[first]!), end - Math.min(span, SPAN_MIN)), end]
}
