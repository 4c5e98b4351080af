// The stream of memoird: one tick a second and the events as they happen. When it breaks, the page says since when
// what it shows is stale, and tries again, at first soon, then every half minute, at once when the network or the
// page comes back.
import { parsePlain } from '../base/plain'
import { computed, signal } from '@preact/signals'
import { address, get, locked } from './client'
import type { Event, Session, Tick } from './types'

export type LiveState = 'connecting' | 'live' | 'reconnecting'

export interface Live {
  state: LiveState
  /** When the last word came, in ms of Date.now(); 0: never */
  since: number
  /** When the next try is due, in ms of Date.now() */
  retryAt: number
}

export const live = signal<Live>({ state: 'connecting', since: 0, retryAt: 0 })
export const tick = signal<Tick | null>(null)
export const session = signal<Session | null>(null)
/** Newest last. */
export const events = signal<Event[]>([])
export const stale = computed(() => live.value.state === 'reconnecting')
/** The last so many ticks: what charts of the last minutes begin with. */
export const ticks = signal<Tick[]>([])

export const EVENTS_MAX = 500
const TICKS_MAX = 120
/** Ticks come each second; after so long without one the stream is as good as broken. */
const SILENCE_MS = 4000
const WAIT_MS_MAX = 30_000

let source: EventSource | null = null
let tries = 0
let timer: ReturnType<typeof setTimeout> | undefined
let silence: ReturnType<typeof setTimeout> | undefined

/** What two lists of events are together, in the order of their numbers, the latest EVENTS_MAX. */
export function mergeEvents(before: Event[], more: Event[]): Event[] {
  if (more.length === 0) return before
  const byId = new Map<number, Event>()
  for (const event of before) byId.set(event.seq, event)
  for (const event of more) byId.set(event.seq, event)
  return [...byId.values()].sort((a, b) => a.seq - b.seq).slice(-EVENTS_MAX)
}

/** Before the n-th try, n from 1: doubled each time, and spread so that a thousand pages do not come at once. */
export function backoffMs(n: number, random: number): number {
  return Math.min(WAIT_MS_MAX, 500 * 2 ** (n - 1)) * (0.75 + random / 2)
}

function heard(): void {
  tries = 0
  live.value = { state: 'live', since: Date.now(), retryAt: 0 }
  clearTimeout(silence)
  silence = setTimeout(() => broken(), SILENCE_MS)
}

function broken(): void {
  source?.close()
  source = null
  clearTimeout(timer)
  clearTimeout(silence)
  tries++
  const wait = backoffMs(tries, Math.random())
  live.value = { state: 'reconnecting', since: live.value.since, retryAt: Date.now() + wait }
  timer = setTimeout(() => void connect(), wait)
}

/** Try now instead of when it is due. */
export function reconnectNow(): void {
  if (live.value.state === 'live' && !locked.value) return
  tries = 0
  clearTimeout(timer)
  void connect()
}

async function connect(): Promise<void> {
  source?.close()
  source = null
  try {
    // An EventSource does not tell why it failed; this does, and says who we are.
    session.value = await get<Session>('/session')
    locked.value = false
    const last = events.value.length ? events.value[events.value.length - 1]!.seq : null
    const where = last == null ? {} : { where: `seq>${last}` }
    const missed = await get<{ rows: Event[] }>('/events', { ...where, limit: EVENTS_MAX })
    events.value = mergeEvents(events.value, missed.rows)
  } catch {
    if (!locked.value) broken()
    return
  }
  listen(new EventSource(address('/stream')))
}

function listen(stream: EventSource): void {
  source = stream
  stream.addEventListener('hello', () => heard())
  stream.addEventListener('tick', (message) => {
    const next = parsePlain((message as MessageEvent<string>).data) as Tick
    heard()
    ticks.value = [...ticks.value.slice(1 - TICKS_MAX), next]
    tick.value = next
  })
  stream.addEventListener('event', (message) => {
    events.value = mergeEvents(events.value, [parsePlain((message as MessageEvent<string>).data) as Event])
  })
  stream.onerror = () => {
    if (source === stream) broken()
  }
  clearTimeout(silence)
  silence = setTimeout(() => broken(), SILENCE_MS * 2)
}

export function startStream(): void {
  void connect()
  addEventListener('online', reconnectNow)
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) reconnectNow()
  })
}
