// Sorting of rows by a word of the address: "-rss" large first, "+rss" small first.

export interface Sort {
  id: string
  down: boolean
}

export function parseSort(text: string): Sort | null {
  if (!text) return null
  const down = text[0] === '-'
  const id = text.replace(/^[-+]/, '')
  return id ? { id, down } : null
}

export const sortText = (sort: Sort): string => (sort.down ? '-' : '+') + sort.id

/** The sort after a click on a column: its own direction first, then the other. */
export function nextSort(now: Sort | null, id: string, downFirst: boolean): Sort {
  return now?.id === id ? { id, down: !now.down } : { id, down: downFirst }
}

function compare(a: unknown, b: unknown): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b
  const x = String(a)
  const y = String(b)
  return x < y ? -1 : x > y ? 1 : 0
}

/** A sorted copy. What is not known comes last in either direction; equal rows keep their order, so that a table
 * does not dance when a tick changes nothing. */
export function sortRows<R>(rows: readonly R[], value: (row: R) => unknown, down: boolean): R[] {
  const known: { row: R; key: unknown }[] = []
  const unknown: R[] = []
  for (const row of rows) {
    const key = value(row)
    if (key == null) unknown.push(row)
    else known.push({ row, key })
  }
  const sign = down ? -1 : 1
  known.sort((a, b) => sign * compare(a.key, b.key))
  const out = new Array<R>(rows.length)
  for (let i = 0; i < known.length; i++) out[i] = known[i]!.row
  for (let i = 0; i < unknown.length; i++) out[known.length + i] = unknown[i]!
  return out
}
