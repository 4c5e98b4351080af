"""Programs made with -fsanitize, started by programs that are tracked: they run as they would without us, by whatever way they were started."""

import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import stage

stage.build_root()
from cli_support import BUILD, ENVIRONMENT, MEMOIR, CommandTest  # noqa: E402

LIBRARIES = {"--malloc": BUILD / "src/malloc/libmemoir-malloc.so", "--track": BUILD / "src/track/libmemoir-track.so"}
SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv)
{
    char name[32] = "", line[4096], *preload = getenv("LD_PRELOAD");
    FILE *file = fopen("/proc/self/comm", "r");
    if (!file || !fgets(name, sizeof(name), file))
        return 9;
    fclose(file);
    name[strcspn(name, "\n")] = 0;
    printf("%s|%s", name, preload ? preload : "-");
    for (int i = 1; i < argc; i++)
        printf("|%s", argv[i]);
    file = fopen("/proc/self/maps", "r");
    for (int ours = 0; !ours && fgets(line, sizeof(line), file);)
        if ((ours = strstr(line, "libmemoir") != NULL))
            printf("|ours");
    fclose(file);
    puts("");
    fflush(stdout);
    if (argc > 1 && !strcmp(argv[1], "start")) /* a child of its own */
        return system(argv[2]) == 0 ? 0 : 8;
    char *volatile block = malloc(10);
    free(block);
    if (argc > 1 && !strcmp(argv[1], "crime"))
        block[3] = 1;
    return 5;
}
"""
# A program that is tracked and starts another one in the way that is asked for.
START = """
import ctypes, os, sys
how, program = sys.argv[1:3]
arguments = [program, "a", "", "b c"]
environment = dict(os.environ)
fd = os.open(program, os.O_RDONLY)
with open("/proc/self/maps") as file:
    assert "libmemoir" in file.read()
if how == "spawn":
    pid = os.posix_spawn(program, arguments, environment)
else:
    pid = os.fork()
    if pid == 0:
        if how == "fexecve":
            os.set_inheritable(fd, True)
            os.execve(fd, arguments, environment)
        elif how == "explicit":
            os.execve(program, arguments, {"LD_PRELOAD": environment["LD_PRELOAD"]})
        elif how == "relative":
            os.chdir(os.path.dirname(program))
            os.execv("./" + os.path.basename(program), arguments)
        elif how == "call":
            words = (ctypes.c_char_p * 5)(*map(os.fsencode, arguments), None)
            some = ("LD_PRELOAD=" + environment["LD_PRELOAD"]).encode()
            ctypes.CDLL(None).syscall(ctypes.c_long(int(sys.argv[3])), program.encode(), words, (ctypes.c_char_p * 2)(some, None))
        os._exit(99)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.exit(status)
"""
EXECVE = {"x86_64": 59, "aarch64": 221}


class SanitizedTest(CommandTest):
    kinds = {
        "address": ["gcc", "-fsanitize=address"],
        "thread": ["gcc", "-fsanitize=thread"],
        "leak": ["gcc", "-fsanitize=leak"],
        "clang": ["clang", "-fsanitize=address", "-shared-libsan"],
        "plain": ["gcc"],
        "static": ["gcc", "-static"],
    }

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not all(library.exists() for library in LIBRARIES.values()):
            raise unittest.SkipTest("this build lacks a library to preload")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-sanitized-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        (cls.folder / "main.c").write_text(SOURCE, encoding="utf-8")
        cls.programs = {}
        for kind, command in cls.kinds.items():
            path = cls.folder / kind
            if kind == "clang" and shutil.which("clang"):
                where = subprocess.run(["clang", "-print-runtime-dir"], capture_output=True, text=True, check=False).stdout.strip()
                older = pathlib.Path(where).parent / "linux" # where it is without a folder for each target
                command = [*command, f"-Wl,-rpath,{where}:{older}"]
            if shutil.which(command[0]) and subprocess.run([*command, "-g", "-o", path, cls.folder / "main.c"], capture_output=True,
                                                           check=False).returncode == 0:
                cls.programs[kind] = path

    def program(self, kind):
        if not self.works(kind):
            self.skipTest(f"{' '.join(self.kinds[kind])} makes no program that runs here")
        return self.programs[kind]

    def works(self, kind):
        """Where memoir is not, that is."""
        return kind in self.programs and self.call([self.programs[kind]]).returncode == 5

    @staticmethod
    def call(command, **more):
        more.setdefault("env", ENVIRONMENT)
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, check=False,
                              stdin=subprocess.DEVNULL, **more)

    def tracked(self, option, *command, **more):
        return self.call([MEMOIR, "run", "--quiet", option, "--dir", self.dir, *command], **more)


class Children(SanitizedTest):
    def each(self, kinds=("address", "thread", "leak", "clang")):
        """Programs of these kinds, those that can be made here, and an option of memoir run."""
        programs = [self.programs[kind] for kind in kinds if self.works(kind)]
        if not programs:
            self.skipTest(f"no program with a sanitizer runs here: {', '.join(kinds)}")
        return itertools.product(programs, LIBRARIES)

    def test_they_run_as_without_us(self):
        for program, option in self.each():
            result = self.tracked(option, "sh", "-c", f"{program} a '' 'b c'; echo $?; true")
            self.assertEqual((result.stdout, result.stderr), (f"{program.name}|-|a||b c\n5\n", ""))

    def test_their_sanitizer_finds_what_it_is_there_for(self):
        for program, option in self.each(("address", "clang")):
            result = self.tracked(option, "sh", "-c", f"{program} crime; true")
            self.assertIn("heap-use-after-free", result.stderr)

    def test_plain_ones_stay_tracked(self):
        for program, option in self.each(("plain",)):
            result = self.tracked(option, "sh", "-c", f"{program}; true")
            self.assertEqual((result.stdout, result.stderr), (f"plain|{LIBRARIES[option]}|ours\n", ""))

    def test_every_way_to_start_one(self):
        for how in ("spawn", "fexecve", "explicit", "relative", "call"):
            for program, option in self.each(("address", "thread")):
                number = EXECVE.get(os.uname().machine)
                result = self.tracked(option, os.path.realpath(sys.executable), "-c", START, how, program, number)
                # What is executed by a descriptor has no name but that, or none of its own (kernels from 6.14 on).
                name = result.stdout.partition("|")[0] if how == "fexecve" else program.name
                self.assertEqual((result.stdout, result.stderr, result.returncode), (f"{name}|-|a||b c\n", "", 5), how)

    def test_they_keep_the_name_by_which_they_were_started(self):
        for program, option in self.each(("address", "thread")):
            alias = self.folder / "alias"
            alias.unlink(missing_ok=True)
            alias.symlink_to(program)
            result = self.tracked(option, "sh", "-c", f"{alias}; true")
            self.assertEqual((result.stdout, result.stderr), ("alias|-\n", ""))

    def test_scripts_whose_interpreter_is_one(self):
        for program, option in self.each(("address", "thread")):
            script = self.folder / "script"
            script.write_text(f"#!{program} word\n", encoding="utf-8")
            script.chmod(0o755)
            result = self.tracked(option, "sh", "-c", f"{script} more; true")
            self.assertEqual((result.stdout, result.stderr), (f"{program.name}|-|word|{script}|more\n", ""))

    def test_one_that_a_static_program_starts(self):
        static = self.program("static")
        for program, option in self.each(("address", "thread")):
            shell = self.folder / "relay"
            (self.folder / "relay.c").write_text("#include <unistd.h>\nint main(int c, char **v) { (void)c; execv(v[1], v + 1); return 7; }\n",
                                                 encoding="utf-8")
            self.assertEqual(self.call(["gcc", "-static", "-o", shell, self.folder / "relay.c"]).returncode, 0, static)
            result = self.tracked(option, "sh", "-c", f"{shell} {program}; echo $?; true")
            self.assertEqual((result.stdout, result.stderr), (f"{program.name}|-\n5\n", ""))

    def test_their_own_children_run_untracked(self):
        plain = self.program("plain")
        for program, option in self.each(("address", "thread")):
            result = self.tracked(option, "sh", "-c", f"{program} start '{plain}; {program}; true'")
            self.assertEqual((result.stdout.splitlines()[1:], result.returncode), (["plain|-", f"{program.name}|-"], 0))

    def test_a_deleted_program_is_started_again(self):
        for program, option in self.each(("address",)):
            copy = self.folder / "copy"
            shutil.copy(program, copy)
            code = "import os, sys; fd = os.open(sys.argv[1], os.O_RDONLY); os.unlink(sys.argv[1]); os.set_inheritable(fd, True); os.execve(fd, ['copy'], os.environ)"
            result = self.tracked(option, os.path.realpath(sys.executable), "-c", code, copy)
            self.assertEqual((result.stdout.partition("|")[2], result.stderr, result.returncode), ("-\n", "", 5))


class Preloads(SanitizedTest):
    """By hand, without memoir run."""

    def preloaded(self, program, *entries, separator=":"):
        return self.call([program], env={**ENVIRONMENT, "LD_PRELOAD": separator.join(map(str, entries))})

    def other(self):
        path = self.folder / "other.so"
        (self.folder / "other.c").write_text("int other;\n", encoding="utf-8")
        self.assertEqual(self.call(["gcc", "-shared", "-fPIC", "-o", path, self.folder / "other.c"]).returncode, 0)
        return path

    def test_what_others_preload_stays(self):
        program, other = self.program("thread"), self.other()
        for library in LIBRARIES.values():
            for separator in (":", " "):
                for entries in ((library, other), (other, library), (library, other, library)):
                    result = self.preloaded(program, *entries, separator=separator)
                    self.assertEqual((result.stdout, result.stderr), (f"thread|{other}\n", ""), entries)

    def test_all_of_ours_go(self):
        program = self.program("address")
        result = self.preloaded(program, *LIBRARIES.values(), BUILD / "src/malloc/libmemoir-malloc-ranges.so")
        self.assertEqual((result.stdout, result.stderr), ("address|-\n", ""))

    def runtime(self):
        path = self.call(["gcc", "-print-file-name=libasan.so"]).stdout.strip()
        path = os.path.realpath(path)
        if not os.path.exists(path):
            self.skipTest("no libasan.so")
        return path

    def made(self, name, source, *options):
        path = self.folder / name
        (self.folder / f"{name}.c").write_text(source, encoding="utf-8")
        result = self.call(["gcc", *options, "-o", path, self.folder / f"{name}.c"])
        if result.returncode != 0:
            self.skipTest(f"gcc {' '.join(map(str, options))}: {result.stderr}")
        return path

    def test_one_that_asks_where_its_stack_ends(self):
        """Then it has that variable itself, with nothing in it yet when we look."""
        program = self.made("stack_end", "extern void *__libc_stack_end;\nint main(void) { return __libc_stack_end ? 5 : 6; }\n",
                            "-fsanitize=leak")
        if self.call([program]).returncode != 5:
            self.skipTest("it does not run here")
        self.assertEqual(self.preloaded(program, LIBRARIES["--malloc"]).returncode, 5)

    def test_a_program_that_runs_is_not_started_again(self):
        """Though it loads us, and behind us a library with a sanitizer."""
        library = LIBRARIES["--malloc"]
        inner = self.made("libinner.so", "int inner(void) { return 1; }\n", "-shared", "-fPIC", "-fsanitize=address")
        plug = self.made("plug.so", "int plug;\n", "-shared", "-fPIC", "-Wl,--no-as-needed", library, inner,
                         f"-Wl,-rpath,{library.parent}:{self.folder}")
        main = self.made("loader", '#include <dlfcn.h>\n#include <unistd.h>\nint main(int c, char **v) { (void)!write(1, "once\\n", 5); '
                                   'dlopen(v[c - 1], RTLD_NOW); _exit(5); }\n', "-ldl")
        result = self.call([main, plug], env={**ENVIRONMENT, "LD_PRELOAD": str(LIBRARIES["--track"]),
                                              "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"})
        self.assertEqual((result.stdout, result.returncode), ("once\n", 5), result.stderr)

    def test_a_sanitizer_in_front_of_us_is_where_it_has_to_be(self):
        plain, runtime = self.program("plain"), self.runtime()
        for library in LIBRARIES.values():
            result = self.preloaded(plain, runtime, library)
            self.assertEqual((result.stdout, result.stderr, result.returncode), (f"plain|{runtime}:{library}|ours\n", "", 5))

    def test_one_that_is_preloaded_behind_us(self):
        plain, runtime = self.program("plain"), self.runtime()
        for library in LIBRARIES.values():
            result = self.preloaded(plain, library, runtime)
            self.assertEqual((result.stdout, result.stderr, result.returncode), (f"plain|{runtime}\n", "", 5))

    def test_memoir_run_says_that_one_is_preloaded(self):
        plain, runtime = self.program("plain"), self.runtime()
        result = self.call([MEMOIR, "run", "--dir", self.dir, plain], env={**ENVIRONMENT, "LD_PRELOAD": runtime,
                                                                           "ASAN_OPTIONS": "detect_leaks=0"})
        self.assertEqual((result.stdout, result.returncode), (f"plain|{runtime}\n", 5))
        self.assertIn("runs without being tracked: LD_PRELOAD names a sanitizer", result.stderr)

    def test_memoir_run_says_why_one_is_not_tracked(self):
        for kind in ("address", "thread", "leak", "clang"):
            with self.subTest(kind):
                program = self.program(kind)
                result = self.call([MEMOIR, "run", "--dir", self.dir, program])
                self.assertEqual((result.stdout, result.returncode), (f"{kind}|-\n", 5))
                self.assertIn("runs without being tracked: it is made with -fsanitize", result.stderr)

    def test_where_nothing_of_ours_can_be_taken_out_all_goes_on(self):
        """Not executed for ever, that is: here by a name that is not known, elsewhere by /etc/ld.so.preload."""
        renamed = self.folder / "renamed.so"
        shutil.copy(LIBRARIES["--track"], renamed)
        result = self.preloaded(self.program("address"), renamed)
        self.assertIn("ASan runtime does not come first", result.stderr)


if __name__ == "__main__":
    unittest.main()
