// The line that shows a rate in a chart of what was measured, and where it meets a limit.

const median = (values: number[]): number => {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  if (!sorted.length) return 0
  return sorted.length % 2 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
}

/**
 * A line of that slope through the middle of the points: half of them are above it. The rate is the detector's, so the chart
 * shows what the verdict rests on and not a second opinion.
 */
export function trendLine(t: number[], values: (number | null)[], rate: number): (number | null)[] {
  const origin = t[0] ?? 0
  const known = t.flatMap((time, i) => {
    const value = values[i]
    return value == null ? [] : [value - rate * (time - origin)]
  })
  if (known.length < 2) return t.map(() => null)
  const start = median(known)
  return t.map((time) => Math.max(0, start + rate * (time - origin)))
}

/** Values at `n` moments as far apart from each other: what was looked at often of late and seldom before would bend a small
 * chart that has no axis of time. Each is the last one known by then. */
export function evenly(t: readonly number[], values: readonly (number | null)[], n = 60): (number | null)[] {
  const first = t[0] ?? 0
  const span = (t[t.length - 1] ?? first) - first
  if (t.length < 3 || !(span > 0)) return [...values]
  let at = 0
  return Array.from({ length: n }, (_, i) => {
    while (at + 1 < t.length && t[at + 1]! <= first + (span * i) / (n - 1)) at++
    return values[at] ?? null
  })
}
