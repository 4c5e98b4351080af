// Why memory of a process is pinned for CUDA or not: what libmemoir-cuda decided (memoir pin run).
import type { JSX } from 'preact'
import { useResource } from '../api/resource'
import type { Pinning } from '../api/schema'
import { bytes, count, duration } from '../base/format'
import { Card, Fact, Facts, StaleNotice } from '../kit/parts'
import { Table, type TableColumn } from '../kit/table'

type Block = Pinning['allocations'][number]
type Site = Pinning['sites'][number]

const COLUMNS: TableColumn<Block>[] = [
  { id: 'site', title: 'Allocated at', kind: 'text', width: 200, grow: true, pin: true, value: (b) => b.site },
  { id: 'pinned', title: 'Pinned', kind: 'text', width: 70, value: (b) => (b.is_pinned ? 'yes' : 'no') },
  { id: 'size', title: 'Size', kind: 'bytes', width: 90, value: (b) => b.bytes },
  { id: 'copies', title: 'Copies', kind: 'number', width: 80, value: (b) => b.copies },
  { id: 'saved', title: 'Saved', kind: 'text', align: 'right', width: 90, help: 'what its copies took less because it was pinned', value: (b) => b.saved, text: (b) => duration(b.saved) },
  { id: 'missed', title: 'Missed', kind: 'text', align: 'right', width: 90, help: 'what its copies took longer because it was pageable', value: (b) => b.missed, text: (b) => duration(b.missed) },
  { id: 'why', title: 'Why', kind: 'text', width: 320, grow: true, value: (b) => b.why },
]

const SITES: TableColumn<Site>[] = [
  { id: 'site', title: 'Line', kind: 'text', width: 200, grow: true, pin: true, value: (s) => s.site },
  { id: 'advice', title: 'Advice', kind: 'text', width: 80, help: 'pin: each allocation is worth its memory; reuse: all together are worth that of one, so allocate once and use it again; leave: neither', value: (s) => s.advice },
  { id: 'saves', title: 'Pinning saves', kind: 'text', align: 'right', width: 120, value: (s) => s.saved + s.missed, text: (s) => duration(s.saved + s.missed) },
  { id: 'each', title: 'Each', kind: 'text', align: 'right', width: 90, help: 'what pinning saves for one allocation', value: (s) => s.saves_each, text: (s) => duration(s.saves_each) },
  { id: 'size', title: 'Costs', kind: 'bytes', width: 90, help: 'the average allocation', value: (s) => s.bytes },
  { id: 'copies', title: 'Copies', kind: 'number', width: 80, value: (s) => s.copies },
  { id: 'allocations', title: 'Allocations', kind: 'number', width: 100, value: (s) => s.allocations },
]

/** Nothing where the process does not run with the library. */
export function PinningPart({ pid }: { pid: number }): JSX.Element | null {
  const { data, problem } = useResource<Pinning>(`/processes/${pid}/pinning`, {}, { every: 2000 })
  if (!data) return null
  const verb = data.mode === 'shadow' ? 'would have saved' : 'saved'
  return (
    <Card title="Pinning" class="pinning">
      <StaleNotice problem={problem} />
      <Facts>
        <Fact name="Mode">{data.mode}</Fact>
        <Fact name="Pinned">{bytes(data.registered)}</Fact>
        {data.own_pinned > 0 && <Fact name="Pinned by the program">{bytes(data.own_pinned)}</Fact>}
        {data.kernel_pinned != null && <Fact name="Machine (kernel)">{bytes(data.kernel_pinned)}</Fact>}
        <Fact name="Budget">{data.budget == null ? 'unlimited' : bytes(data.budget)}</Fact>
        <Fact name={`Copies ${verb}`}>{duration(data.saved)}</Fact>
        <Fact name="Pinning cost">{duration(data.cost)}</Fact>
        {data.staged_copies > 0 && <Fact name="Staging saved">{duration(data.staged_saved)}</Fact>}
        {data.touched_ahead > 0 && <Fact name="Touched ahead">{bytes(data.touched_ahead)}</Fact>}
        {data.failures > 0 && <Fact name="Failed">{count(data.failures)}</Fact>}
      </Facts>
      <Table label="why each allocation is pinned or not" columns={COLUMNS} rows={data.allocations} rowKey={(b) => b.address} empty="No large allocation is live." />
      <Table label="call sites worth pinning" columns={SITES} rows={data.sites} rowKey={(s) => s.key} empty="Nothing was copied." />
    </Card>
  )
}
