// A trace as the screen shows it: lines of the chart, names of call sites, sentences. No DOM.
import type { Flow, Trace, TraceBlock, TraceSite, Traced, TracedProcess } from '../api/schema'
import { bytes, count, percent } from '../base/format'
import { spaceTitle } from './device_model'

export interface TraceLine {
  id: string
  name: string
  site: number | null
  rest: boolean
  values: number[]
}

export interface TraceChart {
  t: number[]
  lines: TraceLine[]
}

export type Sites = Map<number, TraceSite>

/** Call sites by number. Where several have the same line, as below a wrapper of the driver's functions, each is named by the caller in
 * which they differ: "train.c:99 in allocate_buffers → device_alloc". */
export function sitesOf(trace: Trace): Sites {
  const same = new Map<string, TraceSite[]>()
  for (const site of trace.sites) same.set(site.text, [...(same.get(site.text) ?? []), site])
  return new Map(trace.sites.map((site) => [site.site, named(site, same.get(site.text)!)]))
}

function named(site: TraceSite, alike: readonly TraceSite[]): TraceSite {
  if (alike.length < 2) return site
  const from = (one: TraceSite): number => one.stack.indexOf(one.text) + 1
  const depth = site.stack.slice(from(site)).findIndex((frame, i) => alike.some((one) => one.stack[from(one) + i] !== frame))
  if (depth < 0) return site
  return { ...site, text: `${site.stack[from(site) + depth]!} → ${site.function ?? site.text}` }
}

/** The program's own line of a call site. */
export const lineOf = (sites: Sites, site: number | null): string =>
  (site == null ? null : sites.get(site)?.text) ?? 'unknown'

export const stackOf = (sites: Sites, site: number | null): string[] => (site == null ? [] : (sites.get(site)?.stack ?? []))

const SPACES: Record<string, string> = { dram: 'device', host: 'host' }
export const traceSpace = (space: string | null): string => (space == null ? '?' : (SPACES[space] ?? spaceTitle(space)))

/** Seconds since 1970, with their fraction. */
export const secondsOf = (time: string | null): number | null => (time == null ? null : Date.parse(time) / 1000)

/** Device memory by holder, the largest at the bottom: what TimeChart stacks. A point at the moment of the trace ends it, since nothing
 * has changed after the last event. */
export function chartOf(trace: Trace, group: 'device' | 'host' = 'device'): TraceChart {
  const { step, lines } = trace.timeline
  const start = secondsOf(trace.timeline.start)
  const now = secondsOf(trace.timeline.now)
  const shown = lines.filter((line) => line.group === group || line.group === 'mixed')
  const n = shown.reduce((most, line) => Math.max(most, line.last.length), 0)
  if (start == null || n === 0) return { t: [], lines: [] }
  const t = Array.from({ length: n }, (_, i) => start + (i + 1) * step)
  const end = now ?? t[n - 1]!
  const later = end > t[n - 1]!
  if (later) t.push(end)
  else t[n - 1] = Math.max(end, n > 1 ? t[n - 2]! : start)
  const sites = sitesOf(trace)
  const out = shown.map((line, i) => ({
    id: line.other ? `${line.group}-rest` : `${i}-${line.site ?? 0}-${line.space ?? ''}`,
    name: line.other ? (line.group === 'mixed' ? 'all others' : 'others') : nameOf(sites, line.site, line.space, group),
    site: line.other ? null : line.site,
    rest: line.other,
    values: later ? [...line.last, line.last[n - 1] ?? 0] : line.last,
  }))
  return { t, lines: out.reverse() }
}

const nameOf = (sites: Sites, site: number | null, space: string | null, group: string): string =>
  lineOf(sites, site) + (group === 'device' && space !== 'dram' ? ` (${traceSpace(space)})` : '')

/** Over the bus: to and from devices, and where the direction is not known. */
export function busOf(copies: { to_device: Flow; from_device: Flow; unknown: Flow }): Flow {
  const all = [copies.to_device, copies.from_device, copies.unknown]
  return { copies: all.reduce((n, f) => n + f.copies, 0), bytes: all.reduce((n, f) => n + f.bytes, 0) }
}

export const shareText = (part: number, whole: number): string => (whole > 0 ? percent((100 * part) / whole) : '-')

/** "12 copies, 4.1 MB" */
export const flowText = (flow: Flow): string => `${count(flow.copies)} ${flow.copies === 1 ? 'copy' : 'copies'}, ${bytes(flow.bytes)}`

/** What the operating system did to a buffer: "faulted 8,192 times before its first copy"; "" if nothing. */
export function faultText(block: TraceBlock): string {
  const { faults, faults_before_copy: early } = block
  if (!faults) return ''
  const times = (n: number): string => `${count(n)} ${n === 1 ? 'time' : 'times'}`
  if (early === faults) return `faulted ${times(early)}${block.copies ? ' before its first copy' : ''}`
  return early ? `faulted ${times(faults)}, ${count(early)} before its first copy` : `faulted ${times(faults)}`
}

export const blockKey = (block: TraceBlock): string => `${block.address}~${block.start ?? 0}`

/** Why there is no trace to show, in a title and a sentence. */
export function whyNot(traced: Pick<Traced, 'state' | 'problem'> | null): { title: string; text: string } {
  if (!traced || traced.state === 'running')
    return {
      title: 'It is not traced',
      text: 'A process is traced from its first call of the CUDA driver on. This one has made none since tracing began.',
    }
  if (traced.state === 'starting') return { title: 'Tracing starts', text: 'This takes a moment.' }
  return {
    title: 'CUDA programs are not traced here',
    text: traced.problem ? `${traced.problem.slice(0, 1).toUpperCase()}${traced.problem.slice(1)}.` : 'memoir doctor says why.',
  }
}

export const lossOf = (process: TracedProcess): number => (process.lost['events'] ?? 0) + (process.lost['blocks'] ?? 0)

export interface Transfer {
  pid: number
  program: string
  to: Flow
  from: Flow
  lost: number
  /** its tracing is switched off: no figure of it is kept */
  off: boolean
}

/** Of the traced processes among these, those that copied most first. */
export function transfersOf(traced: readonly TracedProcess[], pids: ReadonlySet<number>): Transfer[] {
  return traced
    .filter((p) => pids.has(p.pid))
    .map((p) => ({ pid: p.pid, program: p.program || '?', to: p.copies.to_device, from: p.copies.from_device, lost: lossOf(p), off: p.off }))
    .sort((a, b) => b.to.bytes + b.from.bytes - a.to.bytes - a.from.bytes || a.pid - b.pid)
}
