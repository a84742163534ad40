"""scripts/setup, scripts/build and scripts/trainopt in a made-up checkout, where Python, CMake and the program are
stand-ins that write down how they were called."""

import os
import shutil
import subprocess
import time

import pytest

from conftest import CHECKOUT

# `python3 -m venv FOLDER` and `python -m pip … install`; fails or dies in pip if the files `full` or `killed` exist.
PYTHON = """\
#!/bin/sh
echo "python $*" >>"$CALLS"
case "$*" in
  *version_info*) echo 3.11 ;;
  *"-m venv"*)
    for folder; do :; done
    packages=$folder/lib/python3.11/site-packages
    mkdir -p "$folder/bin" "$packages/nvidia/cu13/lib" "$packages/pyarrow"
    cp "$0" "$folder/bin/python" ;;
  *"-m pip"*)
    [ ! -e "$PLAY/full" ] || { echo "No space left on device" >&2; exit 1; }
    [ ! -e "$PLAY/killed" ] || kill -9 $PPID ;;
esac
"""
CMAKE = """\
#!/bin/sh
echo "cmake $*" >>"$CALLS"
case "$1" in
  -S) touch build/build.ninja
      for word; do case $word in *:*=*) echo "$word" >>build/CMakeCache.txt ;; esac; done
      printf '%s\\n' "TRAINOPT_SITE_PACKAGES:PATH=$TRAINOPT_SITE_PACKAGES" "TRAINOPT_ARROW:PATH=$TRAINOPT_ARROW" \\
        "CMAKE_HOME_DIRECTORY:INTERNAL=$2" >>build/CMakeCache.txt ;;
  --build) mkdir -p build/app build/lib; /bin/sleep 0.05
           printf '#!/bin/sh\\necho ran "$@"\\n' >build/app/trainopt; chmod +x build/app/trainopt
           touch build/lib/libtrainopt_cuda.so
           [ ! -e "$PLAY/edit" ] || { /bin/sleep 0.05; echo >>lib/a.cpp; } ;;
esac
"""


class Checkout:
    def __init__(self, folder):
        self.folder, self.play = folder / "checkout", folder
        shutil.copytree(CHECKOUT / "scripts", self.folder / "scripts", ignore=shutil.ignore_patterns("bench", "gpu"))
        for name in ("lib/a.cpp", "lib/b.cpp", "app/main.cpp", "CMakeLists.txt", "CMakePresets.json"):
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_text("")
        tools = folder / "tools"
        tools.mkdir()
        # Finds every Debian package installed and no GPU.
        for name, text in {
            "python3": PYTHON,
            "cmake": CMAKE,
            "dpkg-query": "#!/bin/sh\necho setup: asked >>$CALLS\nprintf 'install ok installed'\n",
            "sleep": "#!/bin/sh\nexec /bin/sleep 0.1\n",
            "nvidia-smi": "#!/bin/sh\n[ ! -e $PLAY/gpu ] || echo 'GPU 0: made up'\n",
        }.items():
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        inherited = (name for name in os.environ if not name.startswith("TRAINOPT_") and name != "CI")
        self.env = {name: os.environ[name] for name in inherited}
        self.env |= {
            "PATH": f"{tools}:{self.env['PATH']}",
            "TRAINOPT_CACHE": str(folder / "cache"),
            "CALLS": str(folder / "calls"),
            "PLAY": str(folder),
        }
        self.git("init", "-q")
        self.commit()

    def git(self, *words):
        who = ["-c", "user.name=A", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", self.folder, *who, *words], check=True, capture_output=True)

    def commit(self):
        self.git("commit", "-q", "--allow-empty", "-m", "a commit")

    def run(self, script, *words, code=0, **env):
        """(Its output, how the tools were called)."""
        calls = self.play / "calls"
        calls.write_text("")
        done = subprocess.run(
            [self.folder / "scripts" / script, *words],
            cwd=self.folder,
            env=self.env | env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done
        return done, calls.read_text()

    def environment(self):
        (found,) = (self.play / "cache").glob("build-*")
        return found


@pytest.fixture
def checkout(tmp_path):
    if any(path.name[6:].isdigit() for path in os.scandir("/dev") if path.name.startswith("nvidia")):
        pytest.skip("a machine with a GPU is never taken for one without")
    return Checkout(tmp_path)


def later():
    """File systems count time in steps of a few milliseconds."""
    time.sleep(0.05)


def test_nothing_is_asked_while_nothing_changed(checkout):
    done, calls = checkout.run("trainopt", "env")
    assert done.stdout == "ran env\n" and "cmake --build" in calls
    done, calls = checkout.run("trainopt", "plan", "a.yaml")
    assert (done.stdout, done.stderr, calls) == ("ran plan a.yaml\n", "", "")


def lose_library_for_gpus(checkout):
    checkout.run("setup", "--cuda")
    checkout.run("trainopt", "env")
    (checkout.folder / "build/lib/libtrainopt_cuda.so").unlink()


CHANGES = {
    "a source is edited": lambda c: (c.folder / "lib/a.cpp").write_text("changed"),
    "a source is added": lambda c: (c.folder / "lib/c.cpp").write_text(""),
    "a source is deleted": lambda c: (c.folder / "lib/b.cpp").unlink(),
    "an older source replaces one": lambda c: os.replace(c.folder / "lib/b.cpp", c.folder / "lib/a.cpp"),
    "a commit": lambda c: c.commit(),
    "a build script is edited": lambda c: (c.folder / "scripts/cmake/module.cmake").write_text(""),
    "requirements are edited": lambda c: (c.folder / "scripts/requirements/build.txt").write_text("torch==9"),
    "the program is lost": lambda c: (c.folder / "build/app/trainopt").unlink(),
    "the library for GPUs is lost": lose_library_for_gpus,
    "the environment is lost": lambda c: shutil.rmtree(c.environment()),
    "CUDA is installed": lambda c: c.run("setup", "--cuda"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_noticed(checkout, change):
    checkout.run("trainopt", "env")
    later()
    change(checkout)
    later()
    done, calls = checkout.run("trainopt", "env")
    assert done.stdout == "ran env\n" and "cmake --build" in calls
    assert checkout.run("trainopt", "env")[1] == ""


def test_an_edit_while_it_builds_is_noticed(checkout):
    (checkout.play / "edit").write_text("")
    checkout.run("trainopt", "env")
    (checkout.play / "edit").unlink()
    assert "cmake --build" in checkout.run("trainopt", "env")[1]
    assert checkout.run("trainopt", "env")[1] == ""


def test_another_cache_or_choice_of_cuda_is_noticed(checkout):
    checkout.run("trainopt", "env")
    for settings in ({"TRAINOPT_CACHE": str(checkout.play / "other")}, {"TRAINOPT_CUDA": "ON"}, {"CI": "true"}):
        assert "cmake -S" in checkout.run("trainopt", "env", **settings)[1], settings


def test_without_a_gpu_cuda_is_left_out(checkout):
    done, calls = checkout.run("trainopt", "env")
    (line,) = (line for line in done.stderr.splitlines() if "left out" in line)
    assert "no NVIDIA GPU" in line and "scripts/setup --cuda" in line, done
    assert "cuda.txt" not in calls and "TRAINOPT_CUDA:BOOL=OFF" in calls, calls


@pytest.mark.parametrize("how", ["--cuda", "TRAINOPT_CUDA=ON", "gpu", "test"])
def test_cuda_is_added_when_it_is_wanted(checkout, how):
    checkout.run("setup")
    if how == "gpu":
        (checkout.play / "gpu").write_text("")
        _, calls = checkout.run("setup")
    elif how == "TRAINOPT_CUDA=ON":
        _, calls = checkout.run("setup", TRAINOPT_CUDA="ON")
    else:
        _, calls = checkout.run("setup", how)
    assert "requirements/cuda.txt" in calls, calls
    assert "build.txt" not in calls, "libtorch is there already"
    assert "TRAINOPT_CUDA=ON" in checkout.run("setup", "--print")[0].stdout
    assert "TRAINOPT_CUDA=OFF" in checkout.run("setup", "--print", TRAINOPT_CUDA="OFF")[0].stdout


def test_choices_that_are_no_choice(checkout):
    for words, env in (((), {"TRAINOPT_CUDA": "maybe"}), (("--cuda",), {"TRAINOPT_CUDA": "OFF"}), (("--cude",), {})):
        done, calls = checkout.run("setup", *words, code=1, **env)
        assert len(done.stderr.splitlines()) == 1 and "pip" not in calls, done


@pytest.mark.parametrize("words", [(), ("--cuda",)])
def test_a_half_made_environment_is_made_again(checkout, words):
    if words:
        checkout.run("setup")
    for play, code in (("killed", -9), ("full", 1)):
        (checkout.play / play).write_text("")
        done, _ = checkout.run("setup", *words, code=code)
        (checkout.play / play).unlink()
    assert "tries again" in done.stderr, done
    remains = checkout.environment() / "remains"
    remains.write_text("")
    _, calls = checkout.run("setup", *words)
    assert "-m venv" in calls and not remains.exists(), calls
    assert "-m venv" not in checkout.run("setup", *words)[1]
