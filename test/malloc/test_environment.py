"""Who may set what from outside: MEMOIR_MALLOC, and programs that run with rights of others."""

import os
import shutil
import unittest

from malloc_support import BUILD, LIBRARY, ProgramTest

PROGRAMS = BUILD / "test/malloc"
CASE = "zero_bytes_are_blocks_of_their_own"
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


class Settings(ProgramTest):
    def family(self, settings, case=CASE):
        return self.call([PROGRAMS / "malloc_family", case], True, {"MEMOIR_MALLOC": settings})

    def test_good_settings_are_taken_silently(self):
        for settings in ("", "pressure=none", "keep=64M,thp=never", "limit=1G", "harden=1,zero_free=1", "account=0", ",,"):
            self.assertEqual(self.family(settings), (0, b"", b""), settings)

    def test_bad_settings_are_told_and_ignored(self):
        for settings in ("nonsense=1", "keep", "keep=", "keep=-1", "pressure=9", "harden=77", "limit=99999999999999999999", "=",
                         "keep=1M,oops=2", "x" * 5000):
            code, out, err = self.family(settings)
            self.assertEqual((code, out), (0, b""), settings)
            self.assertTrue(err.startswith(b"memoir-malloc: ") and err.count(b"\n") == 1, (settings, err))

    def test_extreme_settings_do_what_they_say_and_no_harm(self):
        for settings in ("keep=0", "keep=1152921504606846976", "pressure=critical", "keep=0,pressure=critical,thp=always",
                         "harden=3,quarantine=1", "harden=2,quarantine=0", "harden=2,quarantine=1152921504606846976",
                         "limit=1152921504606846976", "account=1,keep=0,pressure=critical", "numa=follow,thp=never,keep=1"):
            self.assertEqual(self.family(settings), (0, b"", b""), settings)
        for settings in ("account=1,keep=0,pressure=critical,thp=always", "harden=3,quarantine=1"):
            self.assertEqual(self.family(settings, "calloc_is_zero_where_others_were"), (0, b"", b""), settings)

    def test_a_limit_below_all_needs_ends_no_program_by_a_signal(self):
        for settings in ("limit=1", "limit=100K", "limit=1,account=1", "limit=1,harden=3", "limit=1,pressure=critical,keep=0"):
            self.assertEqual(self.call(["/bin/true"], True, {"MEMOIR_MALLOC": settings}), (0, b"", b""), settings)
            # More than what is there from the start.
            code, out, err = self.call(["/bin/bash", "-c", "x=$(printf %0200000d 0); echo ${#x}"], True, {"MEMOIR_MALLOC": settings})
            self.assertEqual((code, out), (2, b""), (settings, err))
            self.assertIn(b"cannot allocate", err)

    def test_a_limit_is_a_limit(self):
        code, _, err = self.family("limit=64M", "calloc_is_zero_where_others_were")  # which takes 64 MiB at the end
        self.assertEqual(code, 2, err)
        self.assertIn(b"not true", err)


class RightsOfOthers(ProgramTest):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("not root: no program with another's rights can be made")
        self.need("setpriv")
        if os.statvfs(self.folder).f_flag & os.ST_NOSUID:
            self.skipTest("programs have no rights of others here")
        self.folder.chmod(0o755)

    def copy(self, program, mode):
        path = self.folder / f"{program}-{mode:o}"
        shutil.copy(PROGRAMS / program, path)
        path.chmod(mode)
        return path

    def test_preloading_is_refused(self):
        plain, raised = (self.copy("malloc_family", mode) for mode in (0o755, 0o4755))
        environment = {"MALLOC_UNDER_TEST": LIBRARY.name}
        self.assertEqual(self.call([*AS_NOBODY, plain, CASE], True, environment)[0], 0)
        code, _, err = self.call([*AS_NOBODY, raised, CASE], True, environment)
        self.assertEqual(code, 2)
        self.assertIn(b"malloc comes from", err)

    def test_settings_are_not_read(self):
        plain, raised = (self.copy("malloc_linked_family", mode) for mode in (0o755, 0o4755))
        environment = {"MEMOIR_MALLOC": "nonsense=1"}
        self.assertIn(b"nonsense", self.call([*AS_NOBODY, plain, CASE], False, environment)[2])
        self.assertEqual(self.call([*AS_NOBODY, raised, CASE], False, environment), (0, b"", b""))


if __name__ == "__main__":
    unittest.main()
