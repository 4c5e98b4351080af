// The parts of the machine's memory that add up to its total (doc/processes.md), in the order of a bar: what programs
// hold, what files hold and can be given up, what the kernel holds, what nobody claims, what is free.
import type { SystemRow } from '../api/types'
import type { Part } from '../kit/stack'

interface PartKind {
  id: string
  name: string
  help: string
  rest?: boolean
}

export const PARTS: PartKind[] = [
  { id: 'anon', name: 'anonymous', help: 'heap, stacks and other memory of programs (anon)' },
  { id: 'shmem', name: 'shared, tmpfs', help: 'shared memory and files on tmpfs (shmem)' },
  { id: 'hugetlb', name: 'huge pages', help: 'huge pages set aside (hugetlb)' },
  { id: 'cache', name: 'files', help: 'files kept in memory, given up when memory is needed (cache)' },
  { id: 'buffers', name: 'disk blocks', help: 'blocks of disks, given up when memory is needed (buffers)' },
  { id: 'slab_reclaimable', name: 'kernel (reclaimable)', help: "structures of the kernel that can be given up (slab_reclaimable)" },
  { id: 'slab_unreclaimable', name: 'kernel (unreclaimable)', help: 'structures of the kernel that cannot be given up (slab_unreclaimable)' },
  { id: 'page_tables', name: 'page tables', help: 'where the pages of programs are (page_tables)' },
  { id: 'kernel_stacks', name: 'kernel stacks', help: 'stacks of the kernel (kernel_stacks)' },
  { id: 'percpu', name: 'per processor', help: "the kernel's memory of each processor (percpu)" },
  {
    id: 'unattributed',
    name: 'unattributed',
    help: 'what no counter of the kernel claims: drivers, memory of devices. Computed; if it grows, a driver may leak',
    rest: true,
  },
  { id: 'free', name: 'free', help: 'used for nothing' },
]

const figure = (value: unknown): number | null => (typeof value === 'number' ? value : null)

/** What one row of the table system says. Parts that the machine has not, and never had, are left out. */
export function partsOf(row: SystemRow): Part[] {
  return PARTS.filter((p) => figure(row[p.id]) || p.id === 'free' || p.id === 'anon').map((p) => ({
    id: p.id,
    name: p.name,
    help: p.help,
    value: figure(row[p.id]),
    color: `var(--part-${p.id})`,
    rest: p.rest ?? false,
  }))
}
