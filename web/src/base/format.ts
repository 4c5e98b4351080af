// Figures as the command line writes them (src/base/units.c): the same bytes read the same everywhere.
// Sizes are decimal, "25.5 MB" is 25,500,000 bytes; rounded half up; what is not known is "-", never 0.

export const ABSENT = '-'

const SIZES = ['B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB'] as const

/** Past this, ten times a figure has no exact number any more. */
const EXACT_MAX = Number.MAX_SAFE_INTEGER / 16

function tenthsOf(value: number, unit: number): number {
  if (value > EXACT_MAX)
    return Number((BigInt(Math.round(value)) * 10n + BigInt(unit) / 2n) / BigInt(unit))
  return Math.floor((value * 10 + unit / 2) / unit)
}

const tenthsText = (tenths: number): string => `${Math.floor(tenths / 10)}.${tenths % 10}`

/** "0 B", "999 B", "1.0 kB", "25.5 MB" */
export function bytes(value: number | null | undefined): string {
  if (value == null) return ABSENT
  if (value < 0) return '-' + bytes(-value)
  if (value < 1000) return `${Math.round(value)} B`
  // Rounding may reach the next unit: 999,950 bytes are 1.0 MB.
  let power = 1
  let unit = 1000
  while (power + 1 < SIZES.length && tenthsOf(value, unit) >= 10000) {
    unit *= 1000
    power++
  }
  return `${tenthsText(tenthsOf(value, unit))} ${SIZES[power]}`
}

/** "1.2 MB/s", with a sign */
export function rate(value: number | null | undefined): string {
  if (value == null) return ABSENT
  if (value === 0) return '0 B/s'
  return `${value > 0 ? '+' : '−'}${bytes(Math.abs(value))}/s`
}

/** Of bytes a second, by the minute as `memoir leaks` tells it: "+2.9 MB/min" */
export function perMinute(value: number | null | undefined): string {
  if (value == null) return ABSENT
  if (value === 0) return '0 B/min'
  return `${value < 0 ? '−' : '+'}${bytes(Math.abs(value) * 60)}/min`
}

/** "0", "999", "12,345,678" */
export function count(value: number | null | undefined): string {
  if (value == null) return ABSENT
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ',')
}

/** "7.5 %" */
export function percent(value: number | null | undefined): string {
  return value == null ? ABSENT : `${tenthsText(Math.floor(value * 10 + 0.5))} %`
}

function pair(big: number, bigUnit: string, small: number, smallUnit: string): string {
  return small > 0 ? `${big}${bigUnit}${small}${smallUnit}` : `${big}${bigUnit}`
}

/** Of seconds, in at most two figures: "850 ns", "3.2 ms", "3.2 s", "4m12s", "5h", "2d3h" */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null) return ABSENT
  if (seconds < 0) return '-' + duration(-seconds)
  if (seconds < 1e-6) return `${Math.round(seconds * 1e9)} ns`
  const small: [string, number, number][] = [
    ['us', 1e6, 10000],
    ['ms', 1e3, 10000],
    ['s', 1, 600],
  ]
  for (const [name, per, below] of small) {
    const tenths = Math.floor(seconds * per * 10 + 0.5)
    if (tenths < below) return `${tenthsText(tenths)} ${name}`
  }
  const s = Math.floor(seconds + 0.5)
  const min = Math.floor(s / 60)
  const hours = Math.floor(min / 60)
  if (min < 60) return pair(min, 'm', s % 60, 's')
  if (hours < 24) return pair(hours, 'h', min % 60, 'm')
  return pair(Math.floor(hours / 24), 'd', hours % 24, 'h')
}

/** Of seconds, in whole ones: what counts up on a page should not flicker in tenths. */
export function wholeDuration(seconds: number): string {
  return seconds < 59.5 ? `${Math.max(0, Math.floor(seconds))}s` : duration(seconds)
}

const two = (n: number): string => String(n).padStart(2, '0')

/** "14:03:59", in the viewer's time zone */
export function clock(time: number | string | Date): string {
  const t = asDate(time)
  return `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`
}

/** "2026-01-31 14:03:59", in the viewer's time zone */
export function dateTime(time: number | string | Date | null | undefined): string {
  if (time == null) return ABSENT
  const t = asDate(time)
  return `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} ${clock(t)}`
}

/** Seconds since 1970, ISO 8601, or a Date. */
function asDate(time: number | string | Date): Date {
  return time instanceof Date ? time : new Date(typeof time === 'number' ? time * 1000 : time)
}

export type Kind = 'text' | 'number' | 'bytes' | 'age' | 'time' | 'percent' | 'share' | 'yes' | 'rate' | 'points' | 'frames'

export interface Mark {
  estimate?: boolean | undefined
  atLeast?: boolean | undefined
}

/** A cell of a table as the command line prints it: "~" an estimate, "+" at least so much. */
export function cell(value: unknown, kind: Kind, mark?: Mark): string {
  if (value == null) return ABSENT
  const text = plain(value, kind)
  return `${mark?.estimate ? '~' : ''}${text}${mark?.atLeast ? '+' : ''}`
}

function plain(value: unknown, kind: Kind): string {
  switch (kind) {
    case 'bytes':
      return bytes(Number(value))
    case 'age':
      return value === 0 ? '0s' : duration(Number(value)) // answers have whole milliseconds: 0 is not 0 ns
    case 'percent':
      return percent(Number(value))
    case 'share':
      return percent(Number(value) * 100)
    case 'time':
      return dateTime(String(value))
    case 'yes':
      return value ? 'yes' : 'no'
    case 'number':
      return count(Number(value))
    case 'rate':
      return rate(Number(value))
    case 'points':
      return `${count(Array.isArray(value) ? value.length : 0)} points`
    case 'frames':
      return Array.isArray(value) ? value.join(' < ') : String(value)
    case 'text':
      return String(value)
  }
}
