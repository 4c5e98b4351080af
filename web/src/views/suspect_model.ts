// A verdict of the detector in words.
import { bytes, clock, count, duration } from '../base/format'
import type { Site, Suspect } from '../api/types'

export type Tone = 'bad' | 'warn' | 'good' | ''

const LEVELS: Record<string, { title: string; tone: Tone; rank: number }> = {
  leak: { title: 'Leak', tone: 'bad', rank: 4 },
  growing: { title: 'Growing', tone: 'warn', rank: 3 },
  'warming up': { title: 'Warming up', tone: '', rank: 2 },
  steady: { title: 'Steady', tone: 'good', rank: 1 },
  'unknown yet': { title: 'Not known yet', tone: '', rank: 0 },
}

export const levelOf = (level: string): { title: string; tone: Tone; rank: number } =>
  LEVELS[level] ?? { title: level, tone: '', rank: 0 }

/** The confidence as it was told, a share or a percentage. It is a score, so it is never called a probability. */
export function sureness(suspect: Suspect): string {
  const value = suspect.confidence
  if (value == null) return ''
  if (typeof value === 'string') return value
  return `${Math.round(value <= 1 ? value * 100 : value)} % sure`
}

export const siteName = (site: Site | null): string => site?.function || site?.file || 'unknown place'

export function sitePlace(site: Site | null): string {
  if (!site?.file) return ''
  const file = site.file.split('/').pop() ?? site.file
  return site.line ? `${file}:${site.line}` : file
}

/** The same while the page lives: what an opened suspect is found by after the next look, and in an address. */
export const suspectKey = (suspect: Suspect): string =>
  [suspect.pid, siteName(suspect.site), sitePlace(suspect.site)].join('~')

/** What matters most first: the verdict, then what runs out soonest, then what grows fastest. */
export function rankSuspects(suspects: Suspect[]): Suspect[] {
  const left = (suspect: Suspect): number => suspect.limit?.in_s ?? Infinity
  return [...suspects].sort(
    (a, b) =>
      levelOf(b.level).rank - levelOf(a.level).rank ||
      compare(left(a), left(b)) ||
      (b.rate ?? 0) - (a.rate ?? 0) ||
      compare(suspectKey(a), suspectKey(b)),
  )
}

const compare = <T>(a: T, b: T): number => (a < b ? -1 : a > b ? 1 : 0)

const LIMITS: Record<string, string> = {
  cgroup: 'limit of its cgroup',
  machine: "machine's memory",
  device: "device's memory",
}

/** "in 2h27m the device's memory (12.9 GB) is full" */
export function limitSentence(suspect: Suspect): string {
  const limit = suspect.limit
  if (!limit || limit.in_s == null) return ''
  const what = LIMITS[limit.what] ?? limit.what
  return `At this rate the ${what} (${bytes(limit.bytes)}) is reached in ${duration(limit.in_s)}.`
}

/** "It holds 44.7 MB in 105 blocks, and has grown since 19:20:13." */
export function heldSentence(suspect: Suspect): string {
  const blocks = `${count(suspect.live_blocks)} ${suspect.live_blocks === 1 ? 'block' : 'blocks'}`
  const since = !suspect.since
    ? ''
    : suspect.since_watched
      ? `, and has grown for as long as it is watched, since ${clock(suspect.since)}`
      : `, and has grown since ${clock(suspect.since)}`
  return `It holds ${bytes(suspect.live_bytes)} in ${blocks}${since}.`
}

/** The detector says what "it" did: "rose by 40 MB" becomes a sentence. */
export const asSentence = (text: string): string => (/^[a-z]/.test(text) ? `It ${text}` : text)
