// One memory of one device: history, the map by address, who holds it, and the blocks with their age.
import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import { useResource } from '../api/resource'
import type { Traced } from '../api/schema'
import type { HistoryAnswer, TableAnswer } from '../api/types'
import { bytes, count, duration, percent } from '../base/format'
import { link, setWords, word } from '../base/route'
import { fragmentsOf, type Fragments } from '../draw/fragments'
import { FragmentMap } from '../draw/fragments_view'
import { TimeChart } from '../kit/chart'
import { Card, Choice, Fact, Facts, ProblemBox, StaleNotice, Tabs, ViewHead, Waiting } from '../kit/parts'
import { Table, type TableColumn } from '../kit/table'
import {
  driverProcessesOf,
  ownersOf,
  rowsOf,
  spaceNames,
  spaceTitle,
  type Device,
  type Owner,
  type Row,
  type Space,
} from './device_model'
import { deviceTitle, DriverBlock, fillText, SpaceBar, spaceLink, TransferBlock } from './devices'
import { everyMs, shownRange } from './history_model'
import { BUFFER_SHOW } from './tables_model'
import { RangeChoice, timeRange, zoom } from './range'

const BLOCKS_MAX = 5000
const POINTS = 400
const COLOURS = 7 // holders with a colour of their own; the others share the eighth

export function DeviceDetail({
  device,
  accounts,
  driven,
  traced,
}: {
  device: Device
  accounts: Row[]
  driven: Row[]
  traced: Traced | null
}): JSX.Element {
  const asked = word('space')
  const space = device.spaces.find((one) => one.name === asked) ?? device.spaces[0]
  return (
    <>
      <ViewHead
        title={deviceTitle(device)}
        sub={[device.kind, device.bus, `${count(device.processes)} ${device.processes === 1 ? 'process' : 'processes'}`]
          .filter(Boolean)
          .join(' · ')}
        end={<a href={link('devices')}>All devices</a>}
      />
      <Tabs
        label="memories of this device"
        now={space?.name ?? ''}
        tabs={device.spaces.map((one) => ({ id: one.name, title: one.title, href: spaceLink(device, one) }))}
      />
      {device.driver && (
        <Card title="Driver">
          <DriverBlock device={device} driver={device.driver} processes={driverProcessesOf(driven, device.id)} />
          <TransferBlock device={device} accounts={accounts} traced={traced} />
        </Card>
      )}
      {space && (
        <SpaceDetail
          key={space.name}
          device={device}
          space={space}
          owners={ownersOf(accounts, device.id, spaceNames(space))}
        />
      )}
    </>
  )
}

/** What the query language takes for these spaces of this device. */
function filterOf(device: Device, space: Space): string {
  const quoted = (text: string): string => `"${text.replace(/["\\]/g, '\\$&')}"`
  const spaces = spaceNames(space).map((name) => `space=${name}`)
  return `device_id=${quoted(device.id)} and (${spaces.join(' or ')})`
}

function SpaceDetail({ device, space, owners }: { device: Device; space: Space; owners: Owner[] }): JSX.Element {
  const blocks = useResource<TableAnswer>(
    '/buffers',
    { where: filterOf(device, space), show: BUFFER_SHOW, sort: '-bytes', limit: BLOCKS_MAX, shape: 'arrays' },
    { every: 2000 },
  )
  const rows = useMemo(() => (blocks.data ? rowsOf(blocks.data) : []), [blocks.data])
  const oldest = rows.reduce((most, row) => Math.max(most, Number(row['age']) || 0), 0)
  return (
    <div class="grid">
      <Card span={5} title={space.title} end={<span class="muted">{fillText(space)}</span>}>
        <SpaceBar device={device} space={space} />
        <div class="space-facts">
          <Facts>
            <Fact name="In use">{bytes(space.used)}</Fact>
            <Fact name="Free">{space.capacity === null ? '-' : bytes(Math.max(0, space.capacity - space.used))}</Fact>
            <Fact name="Blocks">{count(space.blocks)}</Fact>
            <Fact name="Oldest block">{rows.length ? duration(oldest) : '-'}</Fact>
          </Facts>
        </div>
        <OwnerTable owners={owners} total={space.used} />
      </Card>
      <SpaceHistory device={device} space={space} />
      <MapCard
        space={space}
        owners={owners}
        rows={rows}
        whole={blocks.data !== null && blocks.data.matched <= rows.length}
        waiting={!blocks.data && !blocks.problem}
      />
      <Card
        title="Blocks"
        end={<span class="muted">{blocks.data ? `${count(rows.length)} of ${count(blocks.data.matched)}` : ''}</span>}
      >
        <StaleNotice problem={blocks.problem} />
        {blocks.data ? (
          <BlockTable rows={rows} />
        ) : blocks.problem ? (
          <ProblemBox problem={blocks.problem} />
        ) : (
          <Waiting />
        )}
      </Card>
    </div>
  )
}

function OwnerTable({ owners, total }: { owners: Owner[]; total: number }): JSX.Element {
  const columns: TableColumn<Owner>[] = [
    {
      id: 'program',
      title: 'Held by',
      kind: 'text',
      width: 110,
      grow: true,
      value: (o) => o.program,
      render: (o) => (
        <>
          <span class="swatch" style={{ backgroundColor: `var(--series-${colourOf(owners, o.pid) + 1})` }} />{' '}
          {o.program}
        </>
      ),
    },
    { id: 'pid', title: 'PID', kind: 'number', width: 66, value: (o) => o.pid, text: (o) => String(o.pid) },
    { id: 'bytes', title: 'Bytes', kind: 'bytes', width: 82, value: (o) => o.bytes },
    {
      id: 'share',
      title: 'Share',
      kind: 'percent',
      width: 70,
      value: (o) => (total > 0 ? (100 * o.bytes) / total : null),
    },
    { id: 'blocks', title: 'Blocks', kind: 'number', width: 68, value: (o) => o.blocks },
  ]
  return (
    <Table
      label="who holds it"
      columns={columns}
      rows={owners}
      rowKey={(o) => o.pid}
      href={(o) => link(`process/${o.pid}`)}
      height={220}
      bare
      empty={<span class="muted">Nobody holds anything here.</span>}
    />
  )
}

/** The first colours are those of buffers, circular buffers and kernels, on the same screen. */
const colourOf = (owners: Owner[], pid: number): number => {
  const at = owners.findIndex((owner) => owner.pid === pid)
  return at >= 0 && at < COLOURS ? (at + 3) % COLOURS : COLOURS
}

function SpaceHistory({ device, space }: { device: Device; space: Space }): JSX.Element {
  const range = timeRange('10m')
  const { data, problem } = useResource<HistoryAnswer>(
    '/history',
    {
      what: 'device',
      device: device.id,
      from: range.from,
      to: range.to,
      points: POINTS,
    },
    { every: everyMs(range.span, range.zoomed) },
  )
  const names = spaceNames(space)
  const shown =
    data?.series.filter((series) => series.device_id === device.id && names.includes(series.space ?? '')) ?? []
  return (
    <Card span={7} title="History" end={<RangeChoice otherwise="10m" />}>
      {data ? (
        <TimeChart
          label={`${space.title} of ${device.name} over time`}
          t={data.t}
          series={shown.map((series, i) => ({
            id: series.name,
            name: spaceTitle(series.name.split('.').pop() ?? ''),
            values: series.last,
            color: `--series-${(i % 8) + 1}`,
            fill: i === 0,
          }))}
          stacked={shown.length > 1}
          range={range.fixed ?? shownRange(data)}
          max={space.capacity ?? undefined}
          limit={space.capacity ? { value: space.capacity, name: 'size' } : null}
          height={230}
          onZoom={zoom}
        />
      ) : problem ? (
        <ProblemBox problem={problem} />
      ) : (
        <Waiting />
      )}
    </Card>
  )
}

interface MapCardProps {
  space: Space
  owners: Owner[]
  rows: Row[]
  whole: boolean // all blocks are known, not only the largest
  waiting: boolean
}

function MapCard({ space, owners, rows, whole, waiting }: MapCardProps): JSX.Element {
  const map = useMemo(
    () =>
      fragmentsOf(
        rows.map((row) => ({
          id: String(row['id']),
          bytes: Number(row['bytes']) || 0,
          pid: Number(row['pid']) || 0,
        })),
        space.capacity,
      ),
    [rows, space.capacity],
  )
  const people = useMemo(
    () => new Map(owners.map((owner) => [owner.pid, { name: owner.program, colour: colourOf(owners, owner.pid) }])),
    [owners],
  )
  const table = word('as') === 'table'
  return (
    <Card
      title={map.addresses ? 'Map by address' : 'Map'}
      end={
        <Choice
          label="form of the map"
          options={[
            ['map', 'Map'],
            ['table', 'Table'],
          ]}
          value={table ? 'table' : 'map'}
          onChange={(form) => setWords({ as: form === 'table' ? form : null })}
        />
      }
    >
      {waiting ? (
        <Waiting />
      ) : table ? (
        <HolesTable map={map} people={people} />
      ) : (
        <FragmentMap
          map={map}
          owners={people}
          label={`Map of ${space.title}: ${bytes(map.used)} in use of ${bytes(map.size)}`}
        />
      )}
      <p class="map-words muted">{mapSentence(map, whole)}</p>
    </Card>
  )
}

/** What the map says, and what it cannot say. */
export function mapSentence(map: Fragments, whole: boolean): string {
  const part = whole ? '' : ' Only the largest blocks are shown, so holes may be smaller than they look.'
  if (!map.pieces.length) return 'Nothing is allocated here.'
  if (!map.addresses)
    return (
      'The program tells handles, not addresses: blocks stand side by side in the order of their handles, and holes between them are not known.' +
      part
    )
  if (map.fragmentation === null) return 'It is full.'
  return (
    `The largest free piece is ${bytes(map.largestGap)} of ${bytes(map.free)} free, in ${count(map.gaps)} ${map.gaps === 1 ? 'piece' : 'pieces'}: fragmentation ${percent(map.fragmentation * 100)}.` +
    part
  )
}

function HolesTable({ map, people }: { map: Fragments; people: Map<number, { name: string }> }): JSX.Element {
  interface Line {
    start: number
    bytes: number
    what: string
  }
  const lines: Line[] = []
  let reached = 0
  for (const piece of map.pieces) {
    if (map.addresses && piece.start > reached)
      lines.push({ start: reached, bytes: piece.start - reached, what: 'free' })
    lines.push({
      start: piece.start,
      bytes: piece.bytes,
      what: `${people.get(piece.pid)?.name ?? 'PID'} ${piece.pid}`,
    })
    reached = Math.max(reached, piece.start + piece.bytes)
  }
  if (map.size > reached) lines.push({ start: reached, bytes: map.size - reached, what: 'free' })
  const columns: TableColumn<Line>[] = [
    {
      id: 'start',
      title: map.addresses ? 'Address' : 'Offset',
      kind: 'text',
      width: 170,
      value: (l) => l.start,
      render: (l) => <span class="mono">0x{(map.base + BigInt(Math.floor(l.start))).toString(16)}</span>,
    },
    { id: 'bytes', title: 'Size', kind: 'bytes', width: 110, value: (l) => l.bytes },
    { id: 'what', title: 'Held by', kind: 'text', width: 160, grow: true, value: (l) => l.what },
  ]
  return (
    <Table
      label="pieces of this memory by address"
      columns={columns}
      rows={lines}
      rowKey={(l) => `${l.start} ${l.what}`}
      height={320}
      bare
    />
  )
}

const BLOCK_COLUMNS: TableColumn<Row>[] = [
  {
    id: 'id',
    title: 'Address',
    kind: 'text',
    width: 150,
    value: (r) => r['id'],
    render: (r) => <span class="mono">{String(r['id'])}</span>,
  },
  { id: 'bytes', title: 'Size', kind: 'bytes', width: 96, value: (r) => r['bytes'] },
  { id: 'age', title: 'Age', kind: 'age', width: 86, value: (r) => r['age'] },
  { id: 'program', title: 'Program', kind: 'text', width: 130, value: (r) => r['program'] },
  { id: 'pid', title: 'PID', kind: 'number', width: 76, value: (r) => r['pid'], text: (r) => String(r['pid']) },
  { id: 'space', title: 'Memory', kind: 'text', width: 90, value: (r) => r['space'] },
  { id: 'tag', title: 'Tag', kind: 'text', width: 130, value: (r) => r['tag'] },
  { id: 'site', title: 'Asked for by', kind: 'text', width: 200, grow: true, value: (r) => r['site'] },
]

function BlockTable({ rows }: { rows: Row[] }): JSX.Element {
  return (
    <Table
      label="blocks in this memory"
      columns={BLOCK_COLUMNS}
      rows={rows}
      rowKey={(row) => `${String(row['pid'])}~${String(row['space'])}~${String(row['id'])}`}
      sort={word('sort', '-bytes')}
      onSort={(sort) => setWords({ sort })}
      href={(row) => link(`process/${String(row['pid'])}`, { tab: 'blocks' })}
      height={420}
      bare
      empty={<span class="muted">No block lives here, or you may see only your own.</span>}
    />
  )
}
