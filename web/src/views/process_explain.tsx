// Where the resident memory of one process goes: a bar whose parts add up to its RSS, and the largest parts by name.
import type { JSX } from 'preact'
import { useResource } from '../api/resource'
import type { Explain } from '../api/schema'
import { bytes, count, percent } from '../base/format'
import { Card } from '../kit/parts'
import { type Part, Stack } from '../kit/stack'

const KINDS: { id: string; name: string; color: string; help: string }[] = [
  { id: 'heap', name: 'heap', color: 'anon', help: 'blocks of malloc; in use where the process keeps a book, else in use or free' },
  { id: 'slack', name: 'allocator slack', color: 'buffers', help: 'free memory that the allocator keeps, fragmentation, rounding, its records' },
  { id: 'older', name: 'older than the attach', color: 'slab_unreclaimable', help: 'blocks from before the attach, which no book counts, and free memory between them' },
  { id: 'runtime', name: 'runtime', color: 'hugetlb', help: "memory that a language's runtime takes by itself: CPython, V8, JVM, Go, PHP" },
  { id: 'anonymous', name: 'anonymous, named', color: 'percpu', help: 'mappings that the program named, and code made at run time' },
  { id: 'stack', name: 'stacks', color: 'kernel_stacks', help: 'stacks of its threads' },
  { id: 'file', name: 'files', color: 'cache', help: 'mapped files, with their data and bss' },
  { id: 'shared', name: 'shared memory', color: 'shmem', help: 'tmpfs, memfd, System V, shared anonymous memory' },
  { id: 'device', name: 'devices', color: 'page_tables', help: 'memory of drivers' },
  { id: 'memoir', name: 'Memoir itself', color: 'slab_reclaimable', help: 'the cost of accounting: the book and the records of blocks' },
  { id: 'rest', name: 'unexplained', color: 'unattributed', help: 'anonymous memory whose owner is not known' },
]
const NAMED_MAX = 10
const NAMED_SHARE = 0.01

const ESTIMATE_TIP = 'an estimate: the resident heap is divided among call sites by a sample of their blocks'

const kindColor = (id: string): string => `var(--part-${KINDS.find((kind) => kind.id === id)?.color ?? 'free'})`

/** The bar's parts: kinds that have any. */
export function explainParts(kinds: Record<string, number>): Part[] {
  return KINDS.filter((kind) => kinds[kind.id]).map((kind) => ({
    id: kind.id,
    name: kind.name,
    help: kind.help,
    value: kinds[kind.id] ?? 0,
    color: `var(--part-${kind.color})`,
    rest: kind.id === 'rest',
  }))
}

interface Named {
  kind: string
  name: string
  via?: string | null | undefined
  bytes: number
  estimated: boolean
}

type Answer = Pick<Explain, 'parts' | 'sites' | 'others' | 'rss'>

const more = (n: number, what: string): string => `${count(n)} ${what}${n === 1 ? '' : 's'}`

/** Call sites instead of malloc's parts where they are known; they sum to the heap, those without a name as one. */
function allNames(answer: Answer): Named[] {
  const sites = answer.sites?.map((site) => ({ kind: 'heap', name: site.site, via: site.via, bytes: site.bytes, estimated: true }))
  if (sites && answer.others?.bytes)
    sites.push({ kind: 'heap', name: more(answer.others.sites, 'more call site'), via: null, bytes: answer.others.bytes, estimated: true })
  const parts = answer.parts
    .filter((part) => part.bytes && !(sites && part.kind === 'heap'))
    .map(({ kind, name, bytes, estimated }) => ({ kind, name, bytes, estimated }))
  return [...(sites ?? []), ...parts]
}

/** The largest parts by name, and all others as one: together the resident memory. */
export function explainNames(answer: Answer): Named[] {
  const all = allNames(answer).sort((a, b) => b.bytes - a.bytes)
  const shown = all.filter((named, i) => i < NAMED_MAX && named.bytes >= answer.rss * NAMED_SHARE)
  const rest = all.slice(shown.length)
  const bytes = rest.reduce((sum, named) => sum + named.bytes, 0)
  if (bytes) shown.push({ kind: '', name: more(rest.length, 'smaller part'), bytes, estimated: rest.some((named) => named.estimated) })
  return shown
}

/** Of a path the end says most, and the beginning is alike for all. */
export const shortName = ({ kind, name }: Pick<Named, 'kind' | 'name'>): string =>
  kind === 'file' && name.startsWith('/') ? name.slice(name.lastIndexOf('/') + 1) : name

/** Nothing where it may not be seen: the page has its other figures. */
export function ExplainBar({ pid }: { pid: number }): JSX.Element | null {
  const { data } = useResource<Explain>(`/processes/${pid}/explain`, {}, { every: 5000 })
  if (!data) return null
  return (
    <Card class="explain" title="Where its resident memory is" end={<span class="muted">sums to {bytes(data.rss)} RSS</span>}>
      <Stack label="resident memory" parts={explainParts(data.kinds as Record<string, number>)} total={data.rss} />
      <h3>Largest parts</h3>
      <ul class="explain-names">
        {explainNames(data).map((named) => (
          <li key={`${named.kind} ${named.name} ${named.via ?? ''}`}>
            <span class="swatch" style={{ backgroundColor: kindColor(named.kind) }} />
            <span class="num" data-tip={named.estimated ? ESTIMATE_TIP : undefined}>
              {named.estimated ? '~' : ''}
              {bytes(named.bytes)}
            </span>
            <span class="num muted">{percent((named.bytes / data.rss) * 100)}</span>
            <span class="clip" data-tip={named.name}>
              {shortName(named)}
              {named.via && <span class="muted"> via {named.via}</span>}
            </span>
          </li>
        ))}
      </ul>
      {data.live_absent ? (
        <p class="muted small">Not in the sum: {bytes(data.live_absent)} in use on the heap are not resident.</p>
      ) : null}
    </Card>
  )
}
