// A verdict of the detector in words.
import { bytes, clock, count, duration } from '../base/format'
import type { LeaksAnswer, Site, Suspect, SuspectsAnswer } from '../api/types'

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

/** Growth that no call site holds: of a process that keeps no book, or outside malloc. */
export const isResident = (suspect: Pick<Suspect, 'space'>): boolean =>
  suspect.space === 'resident' || suspect.space === 'outside malloc'

/** It is a score, so it is never called a probability. */
export function sureness(suspect: Suspect): string {
  return suspect.confidence == null ? '' : `${Math.round(suspect.confidence * 100)} % sure`
}

type Row = Record<string, unknown>
const text = (row: Row, name: string): string | null => (typeof row[name] === 'string' ? (row[name] as string) : null)
const figure = (row: Row, name: string): number | null => (typeof row[name] === 'number' ? (row[name] as number) : null)
const list = <T>(row: Row, name: string): T[] => (Array.isArray(row[name]) ? (row[name] as T[]) : [])

function suspectOf(row: Row, time: string): Suspect {
  const growing = figure(row, 'growing')
  const left = figure(row, 'limit_in')
  const freed = figure(row, 'freed_share')
  const trend = list<[number, number]>(row, 'trend')
  const why = [text(row, 'why') ?? '']
  if (freed != null) why.push(`Of all that was ever allocated here, ${(freed * 100).toFixed(1)} % was freed.`)
  return {
    pid: figure(row, 'pid') ?? 0,
    program: text(row, 'program'),
    device: text(row, 'device'),
    space: text(row, 'space'),
    level: text(row, 'verdict') ?? '',
    reason: text(row, 'reason'),
    confidence: figure(row, 'confidence'),
    rate: figure(row, 'growth') ?? 0,
    live_bytes: figure(row, 'bytes') ?? 0,
    live_blocks: figure(row, 'blocks') || null,
    since: growing == null ? null : new Date(Date.parse(time) - growing * 1000).toISOString(),
    since_watched: growing != null && growing >= 0.95 * (figure(row, 'watched') ?? Infinity),
    limit: left == null ? null : { in_s: left, bytes: figure(row, 'limit') ?? 0, what: text(row, 'limit_kind') ?? '' },
    site: {
      text: text(row, 'site'),
      via: text(row, 'via'),
      function: text(row, 'function'),
      file: text(row, 'source_file'),
      line: figure(row, 'line'),
      frame: text(row, 'frame'),
    },
    stack: list<string>(row, 'stack').slice().reverse(), // the innermost first
    why: why.filter(Boolean),
    series: { t: trend.map((p) => p[0]), bytes: trend.map((p) => p[1]) },
    samples: list<string>(row, 'examples').map((line) => {
      const [address, bytes, age] = line.split(' ')
      return { address: address ?? '', bytes: Number(bytes), age: Number(age) }
    }),
  }
}

/** What GET /leaks answers, for the page. */
export function suspectsOf(answer: LeaksAnswer | null): SuspectsAnswer | null {
  return answer && {
    suspects: mergeSuspects(answer.rows.map((row) => suspectOf(row as Row, answer.time))),
    stopped: answer.watch?.stopped ?? [],
    books: answer.watch?.books ?? 0,
    watched: answer.watch?.sites ?? 0,
    ready: answer.watch?.ready ?? false,
    looks: answer.watch?.looks ?? 0,
  }
}

/** The function in short, as the text of a site has it after its line: "Cache::load" of "cache.cpp:41 Cache::load". */
export const siteName = (site: { text?: string | null | undefined; function?: string | null; file?: string | null } | null): string =>
  (site?.function && site.text?.replace(/^\S+:\d+ (in )?/, '')) || site?.function || site?.text || site?.file || 'unknown place'

export function sitePlace(site: Site | null): string {
  if (!site?.file) return ''
  const file = site.file.split('/').pop() ?? site.file
  return site.line ? `${file}:${site.line}` : file
}

/** The same while the page lives: what an opened suspect is found by after the next look, and in an address. */
export const suspectKey = (suspect: Suspect): string =>
  [suspect.pid, siteName(suspect.site), sitePlace(suspect.site)].join('~')

/** One line of code asks in several places of its runtime or its library: one suspect for all that share a name. The evidence is that
 * of the place that grows fastest. */
export function mergeSuspects(suspects: Suspect[]): Suspect[] {
  const groups = new Map<string, Suspect[]>()
  for (const suspect of suspects) {
    const key = suspectKey(suspect)
    groups.set(key, [...(groups.get(key) ?? []), suspect])
  }
  return [...groups.values()].map((group) => (group.length === 1 ? (group[0] as Suspect) : mergeGroup(rankSuspects(group))))
}

function mergeGroup(group: Suspect[]): Suspect {
  const first = group[0] as Suspect
  const rate = group.reduce((sum, s) => sum + Math.max(s.rate, 0), 0)
  const room = Math.min(...group.map((s) => (s.limit ? s.limit.in_s * s.rate : Infinity)))
  const t = first.series.t
  const same = group.every((s) => s.series.t.length === t.length)
  return {
    ...first,
    rate,
    live_bytes: group.reduce((sum, s) => sum + s.live_bytes, 0),
    live_blocks: group.some((s) => s.live_blocks == null) ? null : group.reduce((sum, s) => sum + (s.live_blocks ?? 0), 0),
    limit: first.limit && rate > 0 && Number.isFinite(room) ? { ...first.limit, in_s: room / rate } : first.limit,
    series: same ? { t, bytes: t.map((_, i) => group.reduce((sum, s) => sum + (s.series.bytes[i] ?? 0), 0)) } : first.series,
    places: group.length,
  }
}

/** How many leaks there are: lines of code, as the screen lists them. The menu has the same number. */
export const leakCount = (answer: SuspectsAnswer | null): number =>
  answer?.suspects.filter((suspect) => suspect.level === 'leak').length ?? 0

/** The worst of each process, with how many more it has. */
export function worstOfEach(suspects: Suspect[]): { suspect: Suspect; more: number }[] {
  const all = new Map<number, { suspect: Suspect; more: number }>()
  for (const suspect of rankSuspects(suspects)) {
    const known = all.get(suspect.pid)
    if (known) known.more++
    else all.set(suspect.pid, { suspect, more: 0 })
  }
  return [...all.values()]
}

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
  const blocks = suspect.live_blocks == null ? '' : ` in ${count(suspect.live_blocks)} ${suspect.live_blocks === 1 ? 'block' : 'blocks'}`
  const since = !suspect.since
    ? ''
    : suspect.since_watched
      ? `, and has grown for as long as it is watched, since ${clock(suspect.since)}`
      : `, and has grown since ${clock(suspect.since)}`
  return `It holds ${bytes(suspect.live_bytes)}${blocks}${since}.`
}

/** The detector says what "it" did: "rose by 40 MB" becomes a sentence. */
export const asSentence = (text: string): string => (/^[a-z]/.test(text) ? `It ${text}` : text)
