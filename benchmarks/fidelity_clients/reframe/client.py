import re
import subprocess
import sys

reframe = sys.executable.replace("python", "reframe")
said = subprocess.run(
    [reframe, "-C", "settings.py", "-c", "check.py", "-r"], capture_output=True, text=True
).stdout
print(sorted(re.findall(r"(OK|FAIL)\S* \] \(.*?(\w+) /", said)) or said[-900:])
