// What a range of history becomes on the screen: charts by what their series have in common.
import type { HistoryAnswer, HistorySeries } from '../api/types'
import type { Kind } from '../base/format'
import { spaceTitle } from './device_model'

/** Ms between two questions: a point of the chart needs no more than that. What was zoomed into stays as it is. */
export const everyMs = (span: number, zoomed: boolean): number =>
  zoomed ? Infinity : Math.min(60_000, Math.max(2000, span))

export interface Group {
  id: string
  title: string
  kind: Kind
  series: HistorySeries[]
}

const RESIDENT = ['rss', 'pss', 'uss', 'anon', 'file', 'shmem', 'swap']

function groupOf(series: HistorySeries): { id: string; title: string } {
  if (series.kind !== 'bytes')
    return {
      id: series.kind === 'number' ? 'blocks' : series.name,
      title: series.kind === 'number' ? 'Blocks' : series.name,
    }
  if (RESIDENT.includes(series.name)) return { id: 'resident', title: 'As the system sees it' }
  if (/^device|^\d/.test(series.name)) return { id: 'device', title: 'Memory of devices' }
  return { id: 'accounted', title: 'Accounted by the program' }
}

const ORDER = ['resident', 'accounted', 'device', 'blocks']

/** One chart for what belongs together. Series that are 0 or unknown all the time are left out. */
export function groupsOf(answer: HistoryAnswer): Group[] {
  const groups = new Map<string, Group>()
  for (const series of answer.series) {
    if (!series.last.some((value) => value != null && value !== 0)) continue
    const { id, title } = groupOf(series)
    const group = groups.get(id) ?? { id, title, kind: series.kind, series: [] }
    group.series.push(series)
    groups.set(id, group)
  }
  const rank = (group: Group): number => (ORDER.indexOf(group.id) + ORDER.length + 1) % (ORDER.length + 1)
  return [...groups.values()].sort((a, b) => rank(a) - rank(b))
}

const NAMES: Record<string, string> = {
  rss: 'resident',
  pss: 'proportional',
  uss: 'unshared',
  anon: 'anonymous',
  file: 'files',
  shmem: 'shared memory',
}

/** Has values only of the seconds in which it was measured. */
export const isMeasured = (name: string): boolean => name === 'pss'

export function seriesName(name: string): string {
  const [, number, space] = /^device\.(\d+)\.(.+)$/.exec(name) ?? []
  return space ? `${number} ${spaceTitle(space)}` : (NAMES[name] ?? name.replace(/_/g, ' '))
}

/** The time to show: all that was asked for, less the front if nothing is known of most of it. */
export function shownRange(answer: HistoryAnswer): [number, number] {
  const first = answer.t.findIndex((_, i) => answer.series.some((series) => series.last[i] != null))
  const start = first > answer.t.length / 3 ? answer.t[first]! : answer.from
  return [Math.min(start, answer.to - 30), answer.to]
}
