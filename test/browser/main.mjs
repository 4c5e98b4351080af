// The dashboard in a real browser, against a real memoird. The tests share both, and run one after another.
import { test } from 'node:test'
import { Browser, missing } from './browser.mjs'
import { clusterTests } from './cluster.mjs'
import { crowdTests } from './crowd.mjs'
import { cudaTests } from './cuda.mjs'
import { entryTests } from './entry.mjs'
import { looksTests } from './looks.mjs'
import { newcomerTests } from './newcomer.mjs'
import { restartTests } from './restart.mjs'
import { screenTests } from './screens.mjs'
import { trackingTests } from './tracking.mjs'
import { World } from './world.mjs'

const scene = {}

async function start() {
  scene.world = new World()
  scene.browser = new Browser()
  await scene.world.startDaemon()
  scene.world.startDemo()
  scene.leak = await scene.world.startLeak()
  await scene.browser.start()
}

const list = []
const only = process.env.MEMOIR_BROWSER_ONLY ? new RegExp(process.env.MEMOIR_BROWSER_ONLY) : null
for (const add of [entryTests, screenTests, trackingTests, newcomerTests, cudaTests, clusterTests, crowdTests, looksTests, restartTests])
  add(scene, (name, run) => (only?.test(name) ?? true) && list.push([name, run]))

const reason = missing()
if (reason) {
  await test('the dashboard in a browser', { skip: reason }, () => {})
} else {
  try {
    await start()
    for (const [name, run] of list) await test(name, run)
  } finally {
    await scene.browser?.end()
    await scene.world?.end()
  }
}
