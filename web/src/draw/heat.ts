// Shades of the heat map of live blocks by age and size. Bytes in a heap spread over many powers of ten, so the shade
// follows the logarithm: a cell with a thousandth of the largest still shows.

export const SHADES = 7 // steps besides "nothing"; the style sheet has a colour for each

const WIDEST = 1e4 // what is smaller than that part of the largest has the lightest shade

/** 0 for nothing, else 1 to SHADES. */
export function heatShade(value: number, least: number, most: number): number {
  if (!(value > 0)) return 0
  if (!(most > least)) return SHADES
  const part = Math.log(value / least) / Math.log(most / least)
  return 1 + Math.min(SHADES - 1, Math.max(0, Math.floor(part * SHADES)))
}

export interface Heat {
  shades: number[][]
  rows: number[] // sums
  columns: number[]
  total: number
}

const sum = (values: number[]): number => values.reduce((a, b) => a + b, 0)

export function heatOf(values: number[][]): Heat {
  const seen = values.flat().filter((value) => value > 0)
  const most = Math.max(0, ...seen)
  const least = Math.max(most / WIDEST, Math.min(...seen))
  const width = Math.max(0, ...values.map((row) => row.length))
  const rows = values.map(sum)
  return {
    shades: values.map((row) => row.map((value) => heatShade(value, least, most))),
    rows,
    columns: Array.from({ length: width }, (_, i) => sum(values.map((row) => row[i] ?? 0))),
    total: sum(rows),
  }
}

/** What a bucket holds, in words: "under 1 s", "1 s – 10 s", "over 1 h". Each begins where the one before it ends. */
export function heatBucket(begins: number[], i: number, text: (value: number) => string): string {
  const from = begins[i] ?? 0
  const to = begins[i + 1]
  if (to === undefined) return from ? `over ${text(from)}` : 'all'
  return from ? `${text(from)} – ${text(to)}` : `under ${text(to)}`
}
