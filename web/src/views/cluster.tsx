// The cluster from this node: its members, what they hold as a map, one program across all nodes, devices and leaks of all.
// Every card says how many nodes its figures are of; a node that did not answer is named and never counts as 0.
import type { JSX } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { get } from '../api/client'
import { useResource, type Resource } from '../api/resource'
import type { Cluster as ClusterAnswer, ClusterProgram, ClusterPrograms } from '../api/schema'
import type { TableAnswer } from '../api/types'
import { bytes, count, rate, wholeDuration } from '../base/format'
import { go, link, setWords, word } from '../base/route'
import { Treemap } from '../draw/treemap_view'
import { Badge, Card, Choice, Empty, Meter, ProblemBox, StaleNotice, ViewHead, Waiting, type Tone } from '../kit/parts'
import { Table, type TableColumn } from '../kit/table'
import {
  addProcesses,
  missingText,
  namesOf,
  nodesOf,
  share,
  treeOfPrograms,
  type Gathered,
  type Member,
  type NodeMemory,
  type Row,
} from './cluster_model'
import { rowsOf } from './device_model'
import { equals } from './filter'

const MEASURES = [
  ['rss', 'RSS'],
  ['pss', 'PSS'],
  ['heap', 'Heap'],
  ['pinned', 'Pinned'],
  ['device', 'Devices'],
] as const
type Measure = (typeof MEASURES)[number][0]

const TILES_MAX = 400 // single processes in the map
const PROGRAMS_MAX = 100
const NODES_MAX = 256 // of a program, in the map and in its outliers

type Gathering = TableAnswer & { cluster?: Gathered }

/** A question to all nodes; `every` in ms. */
function useAll(path: string, args: Record<string, string | number>, every = 2000): Resource<Gathering> {
  return useResource<Gathering>(path, { ...args, scope: 'cluster', shape: 'arrays' }, { every })
}

export function Cluster(): JSX.Element {
  const { data, problem } = useResource<ClusterAnswer>('/cluster')
  if (!data) return problem ? <ProblemBox problem={problem} middle /> : <Waiting rows={8} />
  if (data.state === 'none') return <NoCluster />
  const program = word('program')
  return (
    <>
      <ViewHead title={program ? <>{program} on all nodes</> : 'Cluster'} sub={summary(data)} end={program && <a class="button" href={link('cluster')}>All programs</a>} />
      {data.problem && <div class="notice bad" role="status">{data.problem}</div>}
      <StaleNotice problem={problem} />
      {program ? <OneProgram program={program} /> : <Everything members={data.members as Member[]} />}
    </>
  )
}

function summary(data: ClusterAnswer): string {
  const here = data.members.filter((m) => m.state !== 'left')
  const lost = here.filter((m) => m.state === 'unreachable').map((m) => m.node)
  return `${count(here.length)} ${here.length === 1 ? 'node' : 'nodes'}${lost.length ? `, unreachable: ${lost.join(', ')}` : ''} · seen from ${data.name}`
}

function NoCluster(): JSX.Element {
  return (
    <Empty title="This memoird is in no cluster" middle>
      <span>Every node of a cluster answers for all of them. To start one here:</span>
      <pre>memoir cluster init</pre>
      <span>It prints the line that joins other nodes.</span>
    </Empty>
  )
}

function Everything({ members }: { members: Member[] }): JSX.Element {
  const chosen = word('measure', 'rss')
  const measure: Measure = MEASURES.find(([id]) => id === chosen)?.[0] ?? 'rss'
  const system = useAll('/query', { table: 'system', by: 'node', show: 'total,used,available' })
  const programs = useResource<ClusterPrograms>('/cluster/programs', { measure, limit: PROGRAMS_MAX, nodes: NODES_MAX }, { every: 2000 })
  return (
    <div class="grid">
      <Members members={members} system={system} />
      <MemoryMap measure={measure} programs={programs} />
      <Programs measure={measure} programs={programs} />
      <Devices />
      <Leaks />
    </div>
  )
}

/** How many nodes a card speaks of, where it is not all. */
function Missing({ of }: { of: { cluster?: Gathered } | null }): JSX.Element | null {
  const text = missingText(of?.cluster)
  return text ? <p class="notice">{text}</p> : null
}

// ---- members ----

const STATES: Record<Member['state'], [string, Tone]> = {
  alive: ['up', 'good'],
  unreachable: ['unreachable', 'bad'],
  left: ['left', ''],
}

function Members({ members, system }: { members: Member[]; system: Resource<Gathering> }): JSX.Element {
  const nodes = useMemo(() => nodesOf(members, system.data ? rowsOf(system.data) : []), [members, system.data])
  return (
    <Card title="Nodes" class="cluster-nodes">
      <Missing of={system.data} />
      <Table<NodeMemory> label="nodes of the cluster" bare columns={NODE_COLUMNS} rows={nodes} rowKey={(n) => n.member.id} height={420} />
    </Card>
  )
}

const NODE_COLUMNS: TableColumn<NodeMemory>[] = [
  {
    id: 'node',
    title: 'Node',
    kind: 'text',
    width: 150,
    grow: true,
    pin: true,
    value: (n) => n.member.node,
    render: ({ member }) => (
      <a href={link('processes', { node: member.self ? null : member.node })} data-tip={member.id}>
        {member.node}
        {member.self && <small class="muted"> this node</small>}
      </a>
    ),
  },
  {
    id: 'state',
    title: 'State',
    kind: 'text',
    width: 110,
    value: (n) => n.member.state,
    render: ({ member }) => (
      <Badge tone={STATES[member.state][1]} tip={`for ${wholeDuration(member.state_age)}`}>
        {STATES[member.state][0]}
      </Badge>
    ),
  },
  {
    id: 'used',
    title: 'Memory used',
    kind: 'bytes',
    align: 'left',
    width: 250,
    value: share,
    render: (n) =>
      n.used == null ? (
        <span class="none">not known</span>
      ) : (
        <span class="limit-cell cluster-memory">
          <Meter share={share(n)} label={`memory of ${n.member.node}`} />
          <span class="num">{bytes(n.used)}</span>
          <span class="num muted">of {bytes(n.total)}</span>
        </span>
      ),
  },
  { id: 'available', title: 'Available', kind: 'bytes', width: 96, value: (n) => n.available },
  { id: 'version', title: 'Version', kind: 'text', width: 84, value: (n) => n.member.version },
  {
    id: 'answer',
    title: 'Last answer',
    kind: 'text',
    width: 130,
    value: (n) => n.member.answered_age,
    render: ({ member }) =>
      member.self ? '' : member.answered_age == null ? <span class="none">none yet</span> : `${wholeDuration(member.answered_age)} ago`,
  },
  {
    id: 'took',
    title: 'Took',
    help: 'how long its last answer took',
    kind: 'number',
    width: 80,
    value: (n) => n.member.answer_took,
    text: (n) => (n.member.answer_took == null ? '' : `${(n.member.answer_took * 1000).toFixed(1)} ms`),
  },
  {
    id: 'clock',
    title: 'Clock',
    help: 'how far its clock is from that of this node, where it is more than a second',
    kind: 'number',
    width: 90,
    value: (n) => n.member.clock_offset,
    text: ({ member }) => (Math.abs(member.clock_offset) < 1 ? '' : `${member.clock_offset > 0 ? '+' : '−'}${Math.abs(member.clock_offset).toFixed(1)} s`),
  },
]

// ---- the map ----

function MemoryMap({ measure, programs }: { measure: Measure; programs: Resource<ClusterPrograms> }): JSX.Element {
  const processes = useAll('/query', { table: 'host', show: `node,program,pid,${measure}`, sort: `-${measure}`, limit: TILES_MAX })
  const items = useMemo(
    () => addProcesses(treeOfPrograms(programs.data?.programs ?? []), processes.data ? rowsOf(processes.data) : [], measure),
    [programs.data, processes.data, measure],
  )
  return (
    <Card
      title="Where memory is"
      end={<Choice label="measure" options={MEASURES} value={measure} onChange={(to) => setWords({ measure: to === 'rss' ? null : to })} />}
    >
      <Missing of={programs.data} />
      {programs.problem && !programs.data && <ProblemBox problem={programs.problem} />}
      {programs.data && items.length === 0 ? (
        <Empty title={`No node reports any ${MEASURES.find(([id]) => id === measure)![1]}`} />
      ) : (
        <Treemap
          items={items}
          label="Memory of the cluster by node, program and process"
          amount={bytes}
          onOpen={([node, program, process]) => {
            if (process && /^\d+$/.test(process.key)) go(`process/${process.key}`, { node: node!.key })
            else if (program?.key) setWords({ program: program.key }, true)
            else if (node) go('processes', { node: node.key })
          }}
        />
      )}
    </Card>
  )
}

// ---- programs ----

function Programs({ measure, programs }: { measure: Measure; programs: Resource<ClusterPrograms> }): JSX.Element {
  const columns = useMemo(() => programColumns(measure), [measure])
  if (!programs.data) return <Card title="Programs">{programs.problem ? <ProblemBox problem={programs.problem} /> : <Waiting rows={6} />}</Card>
  return (
    <Card title="Programs on all nodes" end={<span class="muted">{count(programs.data.programs_total)}</span>}>
      <Table<ClusterProgram>
        label="programs on all nodes"
        bare
        columns={columns}
        rows={programs.data.programs}
        rowKey={(p) => p.program}
        sort={word('sort', '-outlier')}
        onSort={(sort) => setWords({ sort })}
        href={(p) => link('cluster', { program: p.program, measure: measure === 'rss' ? null : measure })}
        height={420}
      />
    </Card>
  )
}

function programColumns(measure: Measure): TableColumn<ClusterProgram>[] {
  return [
    { id: 'program', title: 'Program', kind: 'text', width: 170, grow: true, pin: true, value: (p) => p.program },
    { id: 'value', title: MEASURES.find(([id]) => id === measure)![1], kind: 'bytes', width: 96, value: (p) => p.value },
    {
      id: 'rate',
      title: 'Rate',
      help: 'by how much RSS grew or shrank, per second, over the last 10 seconds, on all nodes',
      kind: 'bytes',
      width: 110,
      value: (p) => p.growth,
      text: (p) => (p.growth ? rate(p.growth) : ''),
    },
    { id: 'nodes', title: 'Nodes', kind: 'number', width: 76, value: (p) => p.nodes_total },
    { id: 'processes', title: 'Processes', kind: 'number', width: 100, value: (p) => p.processes },
    {
      id: 'outlier',
      title: 'Outlier',
      help: 'nodes on which it grows steadily while it does not on most others, or holds much more or less than on the others',
      kind: 'text',
      width: 380,
      value: (p) => p.outliers,
      render: (p) => <Outliers program={p} />,
    },
  ]
}

/** The first outlier with its reason, and how many more there are. */
function Outliers({ program }: { program: ClusterProgram }): JSX.Element | null {
  const odd = program.nodes.filter((n) => n.outlier)
  if (!odd.length) return null
  const more = program.outliers - 1
  return (
    <Badge tone="warn" tip={odd.map((n) => `${n.node} ${n.why}`).join('; ')}>
      {odd[0]!.node} {odd[0]!.why}
      {more > 0 && `, and ${count(more)} more`}
    </Badge>
  )
}

function OneProgram({ program }: { program: string }): JSX.Element {
  const chosen = word('measure', 'rss')
  const measure: Measure = MEASURES.find(([id]) => id === chosen)?.[0] ?? 'rss'
  const answer = useResource<ClusterPrograms>(
    '/cluster/programs',
    { measure, where: equals('program', program), limit: 1, nodes: 4096 },
    { every: 2000 },
  )
  const it = answer.data?.programs[0] ?? null
  const most = Math.max(0, ...(it?.nodes.map((n) => n.value) ?? []))
  return (
    <div class="grid">
      <Card
        title={it ? `${bytes(it.value)} in ${count(it.processes)} ${it.processes === 1 ? 'process' : 'processes'}` : program}
        end={<Choice label="measure" options={MEASURES} value={measure} onChange={(to) => setWords({ measure: to === 'rss' ? null : to })} />}
      >
        <Missing of={answer.data} />
        {!answer.data && (answer.problem ? <ProblemBox problem={answer.problem} /> : <Waiting rows={4} />)}
        {answer.data && !it && <Empty title={`No node runs ${program}, or none knows this figure of it`} />}
        <ul class="lines by-node">
          {it?.nodes.map((n) => (
            <li key={n.node}>
              <a class="clip" href={link('processes', { node: n.node, where: equals('program', program) })}>
                {n.node}
              </a>
              <span class="meter plain wide-bar">
                <i style={{ width: `${most > 0 ? (n.value / most) * 100 : 0}%` }} />
              </span>
              <span class="num">{bytes(n.value)}</span>
              <span class="num muted">{n.growth ? rate(n.growth) : ''}</span>
              <span class="num muted">{count(n.processes)}</span>
              <span>{n.outlier && <Badge tone="warn">outlier: {n.why}</Badge>}</span>
            </li>
          ))}
        </ul>
      </Card>
    </div>
  )
}

// ---- devices and leaks of all nodes ----

function Devices(): JSX.Element {
  const answer = useAll('/devices', { show: 'node,device_name,device_id,space,used,capacity,driver.used,processes' }, 5000)
  const rows = answer.data ? rowsOf(answer.data) : []
  return (
    <Card title="Devices of all nodes" span={6}>
      <Missing of={answer.data} />
      {!answer.data && (answer.problem ? <ProblemBox problem={answer.problem} /> : <Waiting rows={3} />)}
      {answer.data && rows.length === 0 && <Empty title="No node reports a device" />}
      <ul class="lines cluster-devices">
        {rows.map((row, i) => {
          const used = typeof row['used'] === 'number' ? row['used'] : (row['driver.used'] as number | null)
          const size = typeof row['capacity'] === 'number' ? row['capacity'] : null
          return (
            <li key={i}>
              <a class="clip" href={link('devices', { node: String(row['node']) })}>
                {String(row['node'])}
              </a>
              <span class="clip">
                {String(row['device_name'] ?? row['device_id'])} <span class="muted">{String(row['space'] ?? '')}</span>
              </span>
              <Meter share={used != null && size ? used / size : null} label={`${String(row['node'])} ${String(row['device_name'])}`} />
              <span class="num">{bytes(used)}</span>
            </li>
          )
        })}
      </ul>
    </Card>
  )
}

/** The column `level` of a leak. */
const LEAK = 4

const where = (nodes: number | null, one: string): string => (nodes == null || nodes <= 1 ? one : `${count(nodes)} nodes`)

/** Lines in the source by the keys of their sites. Only a node itself can name the places in its programs: one of those that have
 * the site is asked, once. */
function useNames(rows: readonly Row[]): ReadonlyMap<string, string> {
  const [names, setNames] = useState<ReadonlyMap<string, string>>(new Map())
  const asked = useRef(new Set<string>())
  useEffect(() => {
    const open = rows.filter((row) => row['key'] != null && !asked.current.has(String(row['key'])))
    for (const row of open) asked.current.add(String(row['key']))
    for (const node of new Set(open.map((row) => String(row['any(node)']))))
      get<TableAnswer & { rows: Row[] }>('/leaks', { node })
        .then((answer) => setNames((old) => namesOf(old, answer.rows)))
        .catch(() => undefined) // the file and the offset in it are shown instead
  }, [rows])
  return names
}

function Leaks(): JSX.Element {
  const answer = useAll(
    '/query',
    {
      table: 'leaks',
      by: 'program,key,space',
      show: 'any(site),any(reason),max(level),any(node),nodes,growth,bytes',
      sort: '-growth',
      limit: 20,
    },
    5000,
  )
  const rows = useMemo(() => (answer.data ? rowsOf(answer.data) : []), [answer.data])
  const names = useNames(rows)
  return (
    <Card title="Leaks of all nodes" span={6}>
      <Missing of={answer.data} />
      {!answer.data && (answer.problem ? <ProblemBox problem={answer.problem} /> : <Waiting rows={3} />)}
      {answer.data && rows.length === 0 && <Empty title="No node that answered reports a leak" />}
      <ul class="lines cluster-leaks">
        {rows.map((row, i) => (
          <li key={i}>
            <a class="clip" href={link('leaks', { node: String(row['any(node)']) })}>
              {String(row['program'])} <span class="muted">{names.get(String(row['key'])) ?? String(row['any(site)'] ?? row['any(reason)'] ?? '')}</span>
            </a>
            <span>{row['max(level)'] === LEAK ? <Badge tone="bad">leak</Badge> : <Badge tone="warn">growing</Badge>}</span>
            <span class="num">{bytes(row['bytes'] as number | null)}</span>
            <span class="num">{row['growth'] == null ? '' : rate(row['growth'] as number)}</span>
            <span class="clip muted">{where(row['nodes'] as number | null, String(row['any(node)']))}</span>
          </li>
        ))}
      </ul>
    </Card>
  )
}
