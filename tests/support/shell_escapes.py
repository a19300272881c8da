"""Shell commands that try to get out of their folder, told by what they do to an arena."""

from __future__ import annotations

import shutil

from refork_testbed.sandbox.arena import VARIABLE


def attempts(told: dict[str, object]) -> list[str]:
    """Commands that try to get out."""
    found = [
        f"cat {told['secret']}; ls {told['folder']}",
        f"echo ${VARIABLE}; cat /proc/*/environ; for f in 3 4 5 6 7 8; do cat <&$f; done",
        f"echo x > {told['target']}; cp /bin/sh {told['target']}; mkdir {told['target']}",
        f"chmod 777 {told['secret']}; rm -rf {told['folder']}; mv {told['secret']} here",
        f"ln -s {told['folder']} in; cat in/*; echo x > in/target",
        f"kill -9 {told['victim']}",
        f"kill -9 -1; echo x > /dev/shm/{told['shared']}",
    ]
    if shutil.which("unshare"):
        inner = f"umount -l / /proc; mount --bind / /tmp; chroot . cat {told['secret']}; cat /*/{VARIABLE}"
        found += [f"unshare -Urm sh -c '{inner}; cat {told['secret']}'", "unshare -Upf kill -9 -1"]
    if shutil.which("perl"):
        reach = f'socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un("{told["unix"]}"))'
        found.append(f"perl -MSocket -e '{reach} && print qq(in)'")
    ports = [("tcp", told["tcp"]), ("udp", told["udp"])]
    if shutil.which("bash"):
        found += [f"bash -c 'echo x > /dev/{kind}/127.0.0.1/{port}'" for kind, port in ports]
    return found
