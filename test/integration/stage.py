"""Where the programs under test are. Some tests run them as another user, who cannot look into root's home: where the build
is out of his reach, a copy of programs and libraries is used. The same for scripts of the source tree."""

import atexit
import os
import pathlib
import shutil
import tempfile

FOLDERS = ("src/cli", "src/client", "src/daemon", "src/malloc", "src/observe", "src/standin", "src/track", "src/tt",
           "test/cuda", "test/integration", "test/leaks", "test/malloc", "test/track", "test/tt")


def others_can_reach(path):
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


def copy_programs(build, stage):
    for folder in FOLDERS:
        for path in (build / folder).rglob("*"):
            if path.is_file() and (".so" in path.name or os.access(path, os.X_OK)):
                target = stage / path.relative_to(build)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target, follow_symlinks=False)


def for_others(script):
    """A script of the tests, or a copy of it where another user cannot read it."""
    if os.geteuid() != 0 or others_can_reach(script.parent):
        return script
    folder = pathlib.Path(tempfile.mkdtemp(prefix="memoir-script-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    return pathlib.Path(shutil.copy2(script, folder))


def build_root():
    """The build folder, or its copy. The environment is changed along with it."""
    build = pathlib.Path(os.environ.get("MEMOIR_BUILD_ROOT", "build")).resolve()
    if os.geteuid() != 0 or not build.is_dir() or others_can_reach(build):
        return build
    # Not /tmp, which may be in memory: a test wants a folder that is not.
    stage = pathlib.Path(tempfile.mkdtemp(prefix="memoir-build-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, stage, ignore_errors=True)
    stage.chmod(0o755)
    copy_programs(build, stage)
    os.environ["MEMOIR_BUILD_ROOT"] = str(stage)
    os.environ["LD_LIBRARY_PATH"] = os.environ.get("LD_LIBRARY_PATH", "").replace(str(build), str(stage))
    return stage


def git_environment(home):
    """For a git that knows nothing of whoever runs the tests, and makes the same commits each time."""
    return {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "HOME": str(home),
            **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
               for what, value in (("NAME", "A"), ("EMAIL", "a@b"), ("DATE", "1700000000 +0000"))}}
