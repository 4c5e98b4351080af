"""Why memory is pinned, over HTTP: on the stand-in driver."""

import os
import pathlib
import subprocess
import sys
import unittest

from api_support import ApiTest
from daemon_fixture import PATIENCE_S

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cuda"))
from cuda_support import BUILD, MIB, environment, pin_model  # noqa: E402

DRIVE = BUILD / "test/cuda/pin_drive"
LIBRARY = BUILD / "src/pin/libmemoir-cuda.so"


class PinningTest(ApiTest):
    def calibrate(self, environment_):
        """Decisions by the stand-in's own times: measured ones are those of a busy machine."""
        subprocess.run([str(DRIVE), "hint", str(MIB)], env={**environment_, "PIN_DRIVE_HOLD": ""}, stdin=subprocess.DEVNULL, capture_output=True,
                       timeout=PATIENCE_S, check=True)
        (cost,) = (self.folder / "cache").iterdir()
        cost.write_text("\n".join(cost.read_text().splitlines()[:2]) + "\n" + pin_model())

    def hold(self, preload=True):
        more = {"MEMOIR_DIR": str(self.books), "MEMOIR_PIN_CACHE": str(self.folder / "cache"), "PIN_DRIVE_HOLD": "1", "MEMOIR_PIN_ADAPT": "0"}
        if preload:
            more.update(LD_PRELOAD=str(LIBRARY), MEMOIR_PIN="auto", MEMOIR_PIN_BUDGET="unlimited")
        if preload:
            self.calibrate(environment(self.folder, **more))
        process = subprocess.Popen([str(DRIVE), "together", str(4 * MIB)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env=environment(self.folder, **more))
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait, PATIENCE_S)
        self.addCleanup(process.kill)
        process.stdout.readline()
        return process

    def test_every_allocation_has_a_reason(self):
        self.api()
        process = self.hold()
        answer = self.eventually(lambda: self.request("GET", f"/processes/{process.pid}/pinning"), lambda a: a.status == 200, "pinning")
        pinning = self.valid(answer.json(), "Pinning")
        self.assertEqual(pinning["mode"], "auto")
        self.assertGreater(pinning["registered"], 0)
        (block,) = [b for b in pinning["allocations"] if b["copies"]]
        self.assertEqual((block["bytes"], block["copies"]), (4 * MIB, 2))
        self.assertTrue(block["why"])
        self.assertEqual(sorted(s["copies"] for s in pinning["sites"]), [50, 700])
        self.assertIn("block", pinning["sites"][0]["site"])
        hot = max(pinning["sites"], key=lambda s: s["copies"])
        self.assertEqual((hot["advice"], hot["allocations"]), ("pin", 2))
        self.assertAlmostEqual(hot["saves_each"], (hot["saved"] + hot["missed"]) / 2)
        self.assertIsNotNone(pinning["kernel_pinned"])
        self.assertEqual((pinning["staged_copies"], pinning["staged_saved"], pinning["touched_ahead"]), (0, 0, 0))  # small blocks

    def test_processes_without_it_and_forged_files(self):
        self.api()
        process = self.hold()
        self.eventually(lambda: self.request("GET", f"/processes/{process.pid}/pinning"), lambda a: a.status == 200, "pinning")
        self.assertEqual(self.request("GET", f"/processes/{os.getpid()}/pinning").status, 404)
        (path,) = pathlib.Path(self.books).rglob(f"pin-{process.pid}")
        whole = path.read_bytes()
        path.write_bytes(b"\xff" * len(whole))
        self.eventually(lambda: self.request("GET", f"/processes/{process.pid}/pinning"), lambda a: a.status == 500, "a refusal")
        path.unlink()
        path.symlink_to("/etc/passwd")
        self.eventually(lambda: self.request("GET", f"/processes/{process.pid}/pinning"), lambda a: a.status == 404, "no link is followed")


if __name__ == "__main__":
    unittest.main()
