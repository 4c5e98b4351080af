// Tracking from the page: started and stopped with a question in between, until the verdict appears; a clear word where
// it cannot be done, or may not.
import assert from 'node:assert/strict'
import { picture, textOf, visit } from './browser.mjs'
import { SIEVE, until, VERDICT_MS } from './world.mjs'

/** What memoird says of a process, with the rights of the page's session. */
async function trackingOf(page, pid) {
  const read = async (path) => (await (await fetch(path)).json()).tracking
  return page.evaluate(read, `/api/v1/processes/${pid}`)
}

export function trackingTests(scene, test) {
  test('tracking is started from the page, and the verdict appears by itself', async () => {
    const { page, world } = scene
    const { pid, program } = await world.startLeak('--suspended')
    await visit(page, world.url, `process/${pid}?tab=leaks`)
    const badge = page.locator('.view-head .badge')
    await textOf(badge, /Tracking stopped/)
    await page.getByRole('button', { name: 'Start tracking' }).click()
    const dialog = page.getByRole('dialog')
    await picture(page, 'tracking-question')
    await dialog.getByRole('button', { name: 'Start tracking' }).click()
    await dialog.waitFor({ state: 'hidden' })
    await textOf(badge, /^Tracked/)

    const verdict = page.locator('.suspect', { hasText: 'session_new' })
    await textOf(verdict.locator('.badge'), /Leak/, VERDICT_MS)
    await verdict.locator('.suspect-body .uplot').waitFor()
    await picture(page, 'process-verdict')

    await page.getByRole('button', { name: 'Stop tracking' }).click()
    await dialog.getByRole('button', { name: 'Cancel' }).click()
    await dialog.waitFor({ state: 'hidden' })
    await textOf(badge, /^Tracked/)
    await page.getByRole('button', { name: 'Stop tracking' }).click()
    await dialog.getByRole('button', { name: 'Stop tracking' }).click()
    await textOf(badge, /Tracking stopped/)

    const audit = await until('two lines of audit', () => {
      const lines = world.audit().filter((line) => line.path.endsWith(`/processes/${pid}/tracking`))
      return lines.length >= 2 ? lines : null
    })
    assert.deepEqual(
      audit.map((line) => line.status),
      [200, 200],
    )
    await program.end()
  })

  test('a process that ends while one looks at it is told as ended', async () => {
    const { page, world } = scene
    const { pid, program } = await world.startLeak()
    await visit(page, world.url, `process/${pid}`)
    await page.getByRole('heading', { level: 1, name: 'sieve' }).waitFor()
    await program.end()
    await page.getByText('This process has ended').waitFor()
  })

  test('of a process that is not tracked the page tells what to do', async () => {
    const { page, world } = scene
    await visit(page, world.url, `process/${process.pid}?tab=heap`)
    await page.getByText('needs a tracked program').waitFor()
    await page.getByText('memoir run').first().waitFor()
    // Where probes can account it, it is attached to; else the dialog tells how to start it.
    const tracking = await trackingOf(page, process.pid)
    await page.getByRole('button', { name: tracking.attach ? 'Attach' : 'Start tracking', exact: true }).click()
    await page.getByRole('dialog').getByText(tracking.attach ? 'Probes are put on the allocator' : 'memoir run').first().waitFor()
    await picture(page, 'tracking-impossible')
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'hidden' })
  })

  test('a process that runs already is attached to from the page, and left again', async () => {
    const { page, world } = scene
    const sieve = world.start(SIEVE)
    const [, word] = await sieve.says(/ready (\d+)/)
    const pid = Number(word)
    await visit(page, world.url, `process/${pid}?tab=heap`)
    await page.getByRole('heading', { level: 1, name: 'sieve' }).waitFor()
    if ((await trackingOf(page, pid)).attach) {
      const badge = page.locator('.view-head .badge')
      const dialog = page.getByRole('dialog')
      await page.getByRole('button', { name: 'Attach', exact: true }).click()
      await dialog.getByRole('button', { name: 'Attach', exact: true }).click()
      await dialog.waitFor({ state: 'hidden' })
      await textOf(badge, /^Attached/)
      // At least so much: blocks that are older than the attach are not counted.
      await page.locator('.process-facts').getByText(/B\+$/).waitFor()
      await picture(page, 'attached')
      await page.getByRole('button', { name: 'Detach', exact: true }).click()
      await dialog.getByRole('button', { name: 'Detach', exact: true }).click()
      await textOf(badge, /Not tracked/)
    }
    await sieve.end()
  })

  test('who may only look cannot switch tracking, neither by the button nor around it', async () => {
    const { browser, world } = scene
    const context = await browser.context()
    const page = await browser.page(context, world.url)
    await page.goto(world.loginLink('--role', 'read'))
    await visit(page, world.url, `process/${scene.leak.pid}`)
    await textOf(page.locator('.view-head .badge'), /^Tracked/)
    assert.ok(await page.getByRole('button', { name: 'Stop tracking' }).isDisabled())
    const status = await page.evaluate(async (path) => {
      const headers = { 'Content-Type': 'application/json' }
      return (await fetch(path, { method: 'POST', headers, body: '{"on":false}' })).status
    }, `/api/v1/processes/${scene.leak.pid}/tracking`)
    assert.equal(status, 403)
    await context.close()
  })
}
