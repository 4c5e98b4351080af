// Figures that come with a name and no kind, such as memoird's own: the last word of the name tells what they are. Durations are
// seconds and sizes bytes, as everywhere in the API.
import { bytes, count, dateTime, duration, percent } from '../base/format'

export interface Figure {
  name: string
  text: string
  /** The number, or null where it is none. */
  value: number | null
}

export interface FigureGroup {
  name: string
  figures: Figure[]
}

const ENDS: [RegExp, (n: number) => string][] = [
  [/^bytes_|(^|_)(bytes|rss|pss|size|capacity|memory)(_max)?$|^(available|total|headroom|cgroup_limit)$/, bytes],
  [/(^|_)(uptime|age|ago|lag|lasted|time)(_max)?$|^lag_|^(refresh|reading|user|system)$/, duration],
  [/(^|_)(percent|share)$|^(pressure|pressure_last|stall)$/, percent],
]

/** "lag_p99" → "lag p99" */
export const figureName = (key: string): string => key.replace(/_/g, ' ')

export function figureText(key: string, value: unknown): string {
  if (value == null) return '-'
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (typeof value === 'number') {
    const format = ENDS.find(([end]) => end.test(key))?.[1]
    if (format) return format(value)
    return Number.isInteger(value) ? (key === 'pid' ? String(value) : count(value)) : value.toFixed(2)
  }
  const text = String(value)
  return /^\d{4}-\d\d-\d\dT/.test(text) ? dateTime(text) : text
}

/** The members of an object: plain ones as one group, each object among them as another, deeper ones with longer names. */
export function figureGroups(object: Record<string, unknown>, title: string): FigureGroup[] {
  const own: FigureGroup = { name: title, figures: [] }
  const out: FigureGroup[] = [own]
  for (const [key, value] of Object.entries(object)) {
    if (value != null && typeof value === 'object' && !Array.isArray(value)) {
      const inner = figureGroups(value as Record<string, unknown>, figureName(key))
      const [first, ...rest] = inner
      if (first && first.figures.length > 0) out.push(first)
      for (const group of rest) out.push({ ...group, name: `${figureName(key)}: ${group.name}` })
    } else if (!Array.isArray(value)) {
      own.figures.push({ name: figureName(key), text: figureText(key, value), value: typeof value === 'number' ? value : null })
    }
  }
  return out
}

/** Names of what should stay at zero. Of HTTP, problems are answers to mistakes of who asks. */
const LOSS = /lost|left out|dropped|refused|denied|bad|unreadable|closed|throttled|: problems/

export interface Losses {
  /** How many kinds there are. */
  counted: number
  /** Those that are not at zero, with the name of their group. */
  some: Figure[]
}

export function lossesOf(groups: readonly FigureGroup[]): Losses {
  const all = groups.flatMap((group) =>
    group.figures
      .filter((f) => f.value != null && (LOSS.test(f.name) || LOSS.test(group.name)))
      .map((f) => ({ ...f, name: `${group.name}: ${f.name}` })),
  )
  return { counted: all.length, some: all.filter((f) => f.value !== 0) }
}
