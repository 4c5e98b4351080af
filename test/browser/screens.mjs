// Each screen with what a real memoird says: it fills, it moves by itself, it filters, and one thing leads to the next.
import assert from 'node:assert/strict'
import { picture, textOf, visit } from './browser.mjs'
import { until, VERDICT_MS } from './world.mjs'

/** A figure with a unit. */
const FIGURE = /\d+(\.\d)? (B|kB|MB|GB|TB)/

export function screenTests(scene, test) {
  const open = (place) => visit(scene.page, scene.world.url, place)

  test('the overview shows the machine, devices and who grows', async () => {
    const { page } = scene
    await open('overview')
    await textOf(page.locator('.memory-now .big'), FIGURE)
    await page.getByText('Simulated accelerator A').first().waitFor()
    const sum = await page.evaluate(() => document.querySelectorAll('.memory-now .legend li').length)
    assert.ok(sum >= 5, 'memory in its parts')
    await picture(page, 'overview')
  })

  test('figures move without a reload', async () => {
    const { page } = scene
    await open('devices')
    await page.evaluate(() => (globalThis.sameDocument = true))
    const bars = page.locator('.device .space .num').first()
    const before = await bars.innerText()
    await until('another figure of the device', async () => (await bars.innerText()) !== before)
    assert.equal(await page.evaluate(() => globalThis.sameDocument), true)
  })

  test('processes are found by a filter, and a mistake in it is pointed at', async () => {
    const { page } = scene
    await open('processes')
    const rows = page.locator('.table .body .tr')
    await rows.first().waitFor()
    const filter = page.getByRole('combobox', { name: /filter/ })
    await filter.fill('program=trainer')
    await filter.press('Enter')
    await until('only the trainer', async () => {
      const names = await rows.locator('.td:first-child').allInnerTexts()
      return names.length >= 1 && names.every((name) => name.trim() === 'trainer')
    })
    assert.match(page.url(), /where=program%3Dtrainer/)
    await picture(page, 'processes-filtered')
    await filter.fill('rsss>1GB')
    await filter.press('Enter')
    await page.getByText(/did you mean/).first().waitFor()
    await picture(page, 'processes-mistake')
  })

  test('a row leads to its process, and the browser leads back', async () => {
    const { page } = scene
    await open('processes?where=program%3Dtrainer')
    await page.locator('.table .body .tr .td:first-child a').first().click()
    await page.getByRole('heading', { level: 1, name: 'trainer' }).waitFor()
    assert.match(page.url(), /#\/process\/\d+$/)
    await page.goBack()
    await page.getByRole('heading', { level: 1, name: 'Processes' }).waitFor()
  })

  test('a process has its history in charts under one cursor', async () => {
    const { page } = scene
    await open(`process/${scene.leak.pid}`)
    await page.getByRole('heading', { level: 1, name: 'sieve' }).waitFor()
    await page.locator('.chart .uplot').nth(1).waitFor()
    await until('values under the cursor in both charts', async () => {
      await page.locator('.chart .u-over').first().hover({ position: { x: 200, y: 60 } })
      const shown = await page.locator('.chart .legend li:first-child').allInnerTexts()
      return shown.length >= 2 && shown.every((text) => text !== 'latest') && new Set(shown).size === 1
    })
    await picture(page, 'process-history')
  })

  test('the heap is an icicle that zooms, searches and compares two moments', async () => {
    const { page } = scene
    await open(`process/${scene.leak.pid}?tab=heap`)
    const canvas = page.locator('.icicle canvas')
    await canvas.waitFor()
    await page.getByRole('searchbox', { name: /search/ }).fill('session_new')
    await textOf(page.getByText(/found,/), /[1-9]\d* found, .*MB|kB/)
    await picture(page, 'process-heap')

    // By keyboard, from the root down to what holds most.
    await canvas.focus()
    const told = page.locator('.icicle [role=status]')
    await until('a frame below main', async () => {
      await canvas.press('ArrowDown')
      return /answer_request/.test(await told.innerText())
    })
    await canvas.press('Enter')
    await until('a zoom in the address', () => /zoom=[0-9a-f]+/.test(page.url()))
    await textOf(page.locator('.trail b'), /answer_request/)
    await canvas.press('Escape')
    await until('the way back', async () => !/answer_request/.test(await page.locator('.trail b').innerText()))

    await page.getByLabel('compared with').selectOption({ index: 1 })
    await textOf(page.locator('.card header .end').last(), /\+|found/)
    await page.getByRole('searchbox', { name: /search/ }).fill('')
    await textOf(page.locator('.card header .end').last(), /\+\d[^]*grew/)
    await picture(page, 'process-heap-diff')

    await page.getByRole('button', { name: 'Table', exact: true }).click()
    await page.locator('.table .body .tr', { hasText: 'session_new' }).first().waitFor()
  })

  test('call sites, blocks, and blocks by age and size have their tables', async () => {
    const { page } = scene
    await open(`process/${scene.leak.pid}?tab=sites`)
    const row = page.locator('.table .body .tr', { hasText: 'session_new' }).first()
    await row.waitFor()
    assert.match(await row.innerText(), /sieve\.c:\d+/)
    await row.click()
    await page.getByRole('heading', { name: 'Stacks through session_new' }).waitFor()
    await picture(page, 'process-sites')

    await open(`process/${scene.leak.pid}?tab=ages`)
    await page.locator('table.heat td[class*=shade-]').first().waitFor()
    await picture(page, 'process-ages')

    // Another demo may run on this machine, with books elsewhere.
    await open(`processes?where=${encodeURIComponent('program=trainer and device>0')}`)
    await page.locator('.table .body .tr .td:first-child a').first().click()
    await page.getByRole('link', { name: 'Blocks' }).click()
    await page.locator('.table .body .tr', { hasText: 'Simulated accelerator' }).first().waitFor()
    await picture(page, 'process-blocks')
  })

  test('devices show each memory, its holders, and lead to the map of one', async () => {
    const { page } = scene
    await open('devices')
    await until('both devices', async () => (await page.locator('.device').count()) === 2)
    await textOf(page.locator('.device .owners').first(), /trainer|inference/)
    await picture(page, 'devices')
    await page.getByRole('link', { name: 'DRAM' }).first().click()
    await page.locator('.map canvas').waitFor()
    await page.locator('.table .body .tr').nth(1).waitFor()
    await textOf(page.locator('.map-words'), /free|handles|full/)
    await until('its history', async () => (await page.locator('.chart .uplot').count()) > 0)
    await picture(page, 'device')
    await page.getByRole('button', { name: 'Table', exact: true }).click()
    await page.getByRole('table', { name: /pieces of this memory/ }).waitFor()
  })

  test('leaks are ranked, with stack and evidence', async () => {
    const { page } = scene
    await open('leaks')
    const leak = page.locator('.suspect', { hasText: 'session_new' })
    await textOf(leak.locator('.badge'), /Leak/, VERDICT_MS)
    if ((await leak.locator('.suspect-body').count()) === 0) await leak.locator('button.suspect-head').click()
    const body = leak.locator('.suspect-body')
    await body.locator('.uplot').waitFor()
    await textOf(body.locator('.frames'), /session_new[^]*answer_request/)
    await textOf(body.locator('.why'), /rose/)
    await picture(page, 'leaks')
    await body.getByRole('link', { name: 'Open the process' }).click()
    await page.getByRole('heading', { level: 1, name: 'sieve' }).waitFor()
    await open('overview')
    await textOf(page.locator('.suspects li', { hasText: 'session_new' }).first(), /session_new sieve\.c:\d+ in sieve \d+/, VERDICT_MS)
  })

  test('containers and memoird itself have their screens', async () => {
    const { page } = scene
    await open('containers')
    await page.getByRole('heading', { level: 1, name: 'Containers' }).waitFor()
    await until('rows, or why there are none', async () => (await page.locator('.table .body .tr, .state').count()) > 0)
    await picture(page, 'containers')
    await open('self')
    await textOf(page.locator('.facts').first(), FIGURE)
    await picture(page, 'self')
  })

  test('every view can be linked to', async () => {
    const { page } = scene
    const views = [
      [`process/${scene.leak.pid}?tab=heap&as=table&value=live_blocks`, () => page.getByRole('button', { name: 'Held blocks', pressed: true })],
      ['processes?by=user&sort=-rss', () => page.getByRole('columnheader', { name: /user/i })],
      ['processes?of=exited', () => page.getByRole('button', { name: 'Ended', pressed: true })],
      ['leaks?show=leak', () => page.getByRole('button', { name: 'Leaks only', pressed: true })],
      ['process/1?range=1d', () => page.getByRole('button', { name: '1d', pressed: true })],
      ['process/999999999', () => page.getByText('There is no process 999999999')],
      ['nowhere', () => page.getByText(/There is no page/)],
    ]
    for (const [place, sign] of views) {
      await page.goto('about:blank')
      await open(place)
      await sign().first().waitFor()
    }
  })
}
