// memoird goes and comes back: the page says so, and goes on.
import assert from 'node:assert/strict'
import { picture, textOf, visit } from './browser.mjs'
import { until } from './world.mjs'

export function restartTests(scene, test) {
  test('the page says that memoird is gone, and goes on when it is back', async () => {
    const { page, world } = scene
    await visit(page, world.url, 'devices')
    await page.evaluate(() => (globalThis.sameDocument = true))
    await world.daemon.end()
    await textOf(page.locator('.live'), /reconnecting/)
    await picture(page, 'reconnecting')
    await world.startDaemon()
    // At once instead of when it is due; a session that the new one does not know leads to the login.
    await page.locator('button.live').click({ timeout: 2000 }).catch(() => {})
    const back = await until('live again, or the login', async () => {
      if (await page.getByText('The session has ended').isVisible()) return 'login'
      return (await page.locator('.live').innerText({ timeout: 500 })) === 'live' ? 'live' : null
    })
    if (back === 'login') {
      const code = new URL(world.loginLink()).searchParams.get('code')
      await page.getByLabel(/paste the code/).fill(code)
      await page.getByRole('button', { name: 'Log in' }).click()
    }
    await textOf(page.locator('.live'), /^live$/)
    const bar = page.locator('.device .space .num').first()
    const before = await textOf(bar, /\d/)
    await until('another figure', async () => (await bar.innerText()) !== before)
    assert.equal(await page.evaluate(() => globalThis.sameDocument), true, 'without a reload')
  })
}
