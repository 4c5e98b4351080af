// Completion in a filter of the query language: columns where a column may stand.

export interface ColumnHelp {
  name: string
  kind: string
  help: string
}

export interface Completion {
  /** What it would replace. */
  from: number
  to: number
  options: ColumnHelp[]
}

const OPTIONS_MAX = 9

/** What is before a word decides what it can be: a column follows the start, a parenthesis, a comma, and, or, not. */
const COLUMN_FOLLOWS = /(?:^|[(,]|\b(?:and|or|not))\s*$/i

export function complete(text: string, caret: number, columns: readonly ColumnHelp[]): Completion | null {
  const before = text.slice(0, caret)
  const word = /[\w.]*$/.exec(before)![0]
  const from = caret - word.length
  if (!COLUMN_FOLLOWS.test(before.slice(0, from)) || inQuotes(before)) return null
  const wanted = word.toLowerCase()
  const starts = columns.filter((c) => c.name.startsWith(wanted))
  const inside = columns.filter((c) => !c.name.startsWith(wanted) && wanted && c.name.includes(wanted))
  const options = [...starts, ...inside].slice(0, OPTIONS_MAX)
  // The whole word is there already: nothing to offer.
  if (options.length === 0 || (options.length === 1 && options[0]!.name === word)) return null
  const after = /^[\w.]*/.exec(text.slice(caret))![0]
  return { from, to: caret + after.length, options }
}

function inQuotes(text: string): boolean {
  let quote = ''
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!
    if (quote && c === '\\') i++
    else if (quote) quote = c === quote ? '' : quote
    else if (c === '"' || c === "'") quote = c
  }
  return quote !== ''
}

export function accept(text: string, completion: Completion, name: string): { text: string; caret: number } {
  return {
    text: text.slice(0, completion.from) + name + text.slice(completion.to),
    caret: completion.from + name.length,
  }
}

/** `column=value` in the language: texts in quotes, what is not known as none. */
export function equals(column: string, value: unknown): string {
  if (value == null) return `${column}=none`
  if (typeof value === 'number') return `${column}=${value}`
  if (typeof value === 'boolean') return `${column}=${value ? 'yes' : 'no'}`
  const text = String(value)
  if (/^[\w][\w.\-]*$/.test(text) && text !== 'none') return `${column}=${text}`
  return `${column}="${text.replace(/[\\"]/g, '\\$&')}"`
}

/** Who types a mere word looks for a program; a number is a process. */
export function meant(text: string, columns: readonly ColumnHelp[]): string {
  if (/^\d+$/.test(text)) return `pid=${text}`
  return /^[\w.\-]+$/.test(text) && !columns.some((c) => c.name === text) ? `program~${text}` : text
}

/** Both conditions; the comma binds least, so neither has to be put in parentheses. */
export const both = (a: string, b: string): string => (a.trim() ? `${a.trim()}, ${b}` : b)
