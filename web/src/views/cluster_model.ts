// Answers about the whole cluster as its page shows them: members joined with their memory, programs by node, outliers.

import type { ClusterProgram } from '../api/schema'

export type Row = Record<string, unknown>

export interface Member {
  node: string
  name: string
  id: string
  self: boolean
  state: 'alive' | 'unreachable' | 'left'
  state_age: number
  version: string
  heard_age: number | null
  answer_took: number | null
  answered_age: number | null
  clock_offset: number
}

/** How many nodes an answer is made of, and which are missing. */
export interface Gathered {
  expected: number
  answered: number
  missing: { node: string; refused?: boolean; why?: string | null }[]
  lacking?: { node: string; version: string; columns: string[] }[]
}

export interface NodeMemory {
  member: Member
  total: number | null // null: it did not answer; never 0
  used: number | null
  available: number | null
}

const figure = (value: unknown): number | null => (typeof value === 'number' ? value : null)

/** Every member, those that did not answer, too. The fullest first, unreachable ones before all others. */
export function nodesOf(members: readonly Member[], rows: readonly Row[]): NodeMemory[] {
  const byNode = new Map(rows.map((row) => [String(row['node']), row]))
  return members
    .filter((member) => member.state !== 'left')
    .map((member) => {
      const row = byNode.get(member.node)
      return { member, total: figure(row?.['total']), used: figure(row?.['used']), available: figure(row?.['available']) }
    })
    .sort((a, b) => rank(a) - rank(b) || share(b) - share(a) || (a.member.node < b.member.node ? -1 : 1))
}

const rank = (node: NodeMemory): number => (node.member.state === 'unreachable' ? 0 : 1)
export const share = (node: NodeMemory): number => (node.used != null && node.total ? node.used / node.total : -1)

/** The nodes of the treemap: node, program, process. Small rests are one tile. */
export interface TreeItem {
  key: string
  name: string
  value: number
  below: TreeItem[]
}

const PROGRAMS_MAX = 40

export function treeOfPrograms(programs: readonly ClusterProgram[]): TreeItem[] {
  const nodes = new Map<string, TreeItem>()
  for (const program of programs)
    for (const part of program.nodes) {
      const node = nodes.get(part.node) ?? { key: part.node, name: part.node, value: 0, below: [] }
      node.value += part.value
      node.below.push({ key: program.program, name: program.program, value: part.value, below: [] })
      nodes.set(part.node, node)
    }
  for (const node of nodes.values()) {
    node.below.sort((a, b) => b.value - a.value)
    const rest = node.below.splice(PROGRAMS_MAX)
    const value = rest.reduce((sum, item) => sum + item.value, 0)
    if (value > 0) node.below.push({ key: '', name: `${rest.length} others`, value, below: [] })
  }
  return [...nodes.values()].sort((a, b) => (a.key < b.key ? -1 : 1))
}

/** Single processes into the tree, below their programs. */
export function addProcesses(tree: TreeItem[], rows: readonly Row[], measure: string): TreeItem[] {
  const byNode = new Map(tree.map((node) => [node.key, new Map(node.below.map((p) => [p.key, p]))]))
  for (const row of rows) {
    const program = byNode.get(String(row['node']))?.get(String(row['program']))
    const value = figure(row[measure])
    if (!program || value == null || row['pid'] == null) continue
    program.below.push({ key: String(row['pid']), name: `PID ${String(row['pid'])}`, value, below: [] })
  }
  for (const programs of byNode.values())
    for (const program of programs.values()) {
      const known = program.below.reduce((sum, p) => sum + p.value, 0)
      if (program.below.length === 1 && known >= program.value * 0.98) program.below = []
      else if (program.below.length && program.value - known > program.value * 0.02)
        program.below.push({ key: 'rest', name: 'others', value: program.value - known, below: [] })
    }
  return tree
}

/** "2 of 3 nodes answered; n3 did not" for people; '' when all did. */
export function missingText(gathered: Gathered | null | undefined): string {
  if (!gathered || gathered.answered >= gathered.expected) return ''
  const silent = gathered.missing.filter((m) => !m.refused).map((m) => m.node)
  const refused = gathered.missing.filter((m) => m.refused)
  const parts = [`${gathered.answered} of ${gathered.expected} nodes answered`]
  if (silent.length) parts.push(`no answer from ${silent.join(', ')}`)
  if (refused.length) parts.push(`refused by ${refused.map((m) => m.node).join(', ')}${refused[0]!.why ? ` (${refused[0]!.why})` : ''}`)
  return parts.join('; ')
}

/** Names of sites by their keys, with those of one more answer of a node. */
export function namesOf(old: ReadonlyMap<string, string>, rows: readonly Row[]): Map<string, string> {
  const names = new Map(old)
  for (const row of rows) if (row['key'] != null && typeof row['site'] === 'string') names.set(String(row['key']), row['site'])
  return names
}
