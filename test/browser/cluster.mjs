// Three nodes on one NATS server: the page of each shows all of them, a process of another node, and a node that is gone.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { assertAccessible, assertFits, picture, textOf, visit } from './browser.mjs'
import { freePort, until, World } from './world.mjs'

const SERVER = process.env.NATS_SERVER ?? '/usr/sbin/nats-server'
const NAMES = ['alder', 'birch', 'cedar']

async function startNodes(nodes, scene) {
  const port = await freePort()
  scene.world.start(SERVER, '-a', '127.0.0.1', '-p', String(port))
  for (const name of NAMES) {
    const node = new World()
    nodes.push(node)
    await node.startDaemon('--cluster', `nats://127.0.0.1:${port}`, '--cluster-name', name)
  }
}

/** Logged in at one node. */
async function pageOf(scene, node) {
  const context = await scene.browser.context()
  const page = await scene.browser.page(context, node.url)
  await page.goto(node.loginLink())
  await page.getByRole('navigation', { name: 'Screens' }).waitFor()
  return { context, page }
}

export function clusterTests(scene, test) {
  if (!existsSync(SERVER)) return
  test('each node of a cluster shows all of them', async () => {
    const nodes = []
    try {
      await startNodes(nodes, scene)
      for (const [i, node] of [...nodes.entries()].reverse()) { // the first one last: a node is killed there
        const { context, page } = await pageOf(scene, node)
        await visit(page, node.url, 'cluster')
        const table = page.getByRole('grid', { name: 'nodes of the cluster' }).or(page.getByLabel('nodes of the cluster')).first()
        for (const name of NAMES) await textOf(table, new RegExp(`${name}[\\s\\S]*up[\\s\\S]*GB`))
        await textOf(table, new RegExp(`${NAMES[i]} *this node`))
        await textOf(page.getByLabel('programs on all nodes').first(), /memoird[\s\S]*\d/)
        await page.locator('.treemap canvas').waitFor()
        if (i === 0) await lookCloser(scene, page, node, nodes)
        await context.close()
      }
    } finally {
      for (const node of nodes) await node.end()
    }
  })
}

/** A program on birch is tracked and scanned from the page of another node, with a token of birch. */
async function switchElsewhere(page, node, birch) {
  const { pid } = await birch.startLeak('--suspended')
  await visit(page, node.url, `process/${pid}?node=birch&tab=leaks`)
  await page.getByRole('button', { name: 'Use a token' }).click()
  await page.getByRole('dialog').getByLabel('Token').fill(birch.token())
  await page.getByRole('dialog').getByRole('button', { name: 'Use it' }).click()
  await page.getByRole('button', { name: 'Forget the token' }).waitFor()
  await textOf(page.locator('.view-head'), /Tracking stopped/)
  await page.getByRole('button', { name: 'Start tracking' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Start tracking' }).click()
  await textOf(page.locator('.view-head'), /Tracked/)
  await page.getByRole('button', { name: 'Scan for lost blocks' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Scan', exact: true }).click()
  await textOf(page.getByRole('dialog'), /Lost: .* reachable: /)
  await picture(page, 'cluster-scan')
  await page.getByRole('dialog').getByText('Close', { exact: true }).click()
  const done = birch.audit().filter((line) => line.who.startsWith('token')).map((line) => [line.what, line.who, line.status])
  assert.deepEqual(done, [
    [`tracking of PID ${pid} on`, 'token page at alder', 200],
    [`scan of PID ${pid}`, 'token page at alder', 200],
  ])
}

async function lookCloser(scene, page, node, nodes) {
  await picture(page, 'cluster')
  await assertAccessible(scene.browser, page, 'the cluster')
  await page.getByRole('link', { name: 'memoird', exact: true }).first().click()
  await textOf(page.locator('.by-node'), /alder[\s\S]*birch[\s\S]*cedar|cedar[\s\S]*alder|birch[\s\S]*alder/)
  await picture(page, 'cluster-program')
  // Another node's processes, and one of them, through this node.
  await visit(page, node.url, 'processes?node=birch&where=program%3Dmemoird')
  await textOf(page.locator('.remote'), /Node birch, asked through/)
  const row = page.getByRole('link', { name: 'memoird', exact: true }).first()
  assert.match(await row.getAttribute('href'), /node=birch/)
  await row.click()
  await textOf(page.locator('.view-head h1'), /memoird/)
  await picture(page, 'cluster-process')
  await switchElsewhere(page, node, nodes[1])
  // A node that dies is named, and keeps its line without figures.
  await nodes[2].daemon.end('SIGKILL')
  await visit(page, node.url, 'cluster')
  await textOf(page.locator('.cluster-nodes'), /cedar[\s\S]*unreachable[\s\S]*not known/)
  await textOf(page.locator('.view-head'), /unreachable: cedar/)
  await page.setViewportSize({ width: 390, height: 800 })
  await until('a page that fits', () => assertFits(page, 'the cluster on a phone').then(() => true))
}
