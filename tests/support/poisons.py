"""Commands that try to outlive themselves or alter what runs the next, and what the next one finds.

Each is told by its effect: after it another episode begins, whose first command prints limits, priorities,
files, mounts, System V objects and processes. That must be byte for byte what is printed in a process that
ran nothing before.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from refork.sandbox.inside import filtered
from refork.sandbox.shell import Shell, ShellState

#: What an episode finds. The limit on the number of processes is left out: it counts all that a user has.
PROBE: Final = r"""
exec 2>&1
echo "# limits"; prlimit --output RESOURCE,SOFT,HARD --noheadings 2>&1 | grep -v NPROC
ulimit -S -a | grep -v process; ulimit -H -a | grep -v process
echo "# priorities"; { nice; chrt -p $$; taskset -p $$; ionice -p $$; } 2>&1 | sed "s/$$/N/"
for f in oom_score_adj autogroup timerslack_ns coredump_filter cgroup loginuid
do cat /proc/self/$f; done 2>&1 | sed 's/autogroup-[0-9]*//'
grep -E 'Cap|Uid|Gid|Groups|Sig|Seccomp|NoNewPrivs|_allowed' /proc/self/status
echo "# self"; umask; id; uname -n; pwd; trap; env | sort; alias; set -o
echo "# files"; ls -A /dev /var /run /home
find ~ "$TMPDIR" -exec stat -c '%n %a %u %g %h %F' {} + 2>&1 | sort
cat one.txt; cat ~/.* 2>&1 | head -9; find ~ -newermt 2099-01-01; find ~ ! -newermt 2020-01-01
ls /etc; cat /etc/ld.so.preload /etc/passwd; lsattr -d ~; getfattr -d -m - ~; getfacl ~
stat -f -c '%n %b %c %s %T' ~ "$TMPDIR" 2>&1 | grep tmpfs; df -P ~ "$TMPDIR" 2>&1 | grep tmpfs
echo "# mounts"; sed 's/^[0-9]* [0-9]* [0-9:]* //' /proc/self/mountinfo
echo "# shared"; ipcs -a; cat /proc/sysvipc/*; wc -l < /proc/net/unix; wc -l < /proc/net/tcp
cat /proc/keys; ls -A /dev/shm /dev/mqueue; wc -l < /proc/locks
echo "# processes"; listed=$(ps -e -o ni,cls,args); echo "$listed" | grep -v ' ps -e'
set -- /proc/[0-9]*; echo $#
echo "# works"; for i in 1 2 3 4 5 6 7 8; do (echo $i) & done | sort; wait; echo x > new && cat new && rm new
echo y > $TMPDIR/y && cat $TMPDIR/y; perl -e 'my $x = "x" x 50_000_000; print length($x), "\n"'
exec 3<>/dev/null 4<&3 5<&3 6<&3 7<&3; echo $?
"""

_TEXT: Final = r"""
## limit of processes
for p in $pids; do prlimit --pid $p --nproc=1; done
## limit of the stack
for p in $pids; do prlimit --pid $p --stack=0; done
## limit of descriptors
for p in $pids; do prlimit --pid $p --nofile=4; done
## limit of file sizes
for p in $pids; do prlimit --pid $p --fsize=0; done
## limit of memory
for p in $pids; do prlimit --pid $p --as=1 --data=1 --rss=1; done
## limit of processor time
for p in $pids; do prlimit --pid $p --cpu=1; done
## limits by a raw call
for p in $pids; do perl -e 'my $x = pack("QQ", 1, 1); syscall($prlimit64, int $ARGV[0], 6, $x, 0)' $p; done
## niceness
for p in $pids; do renice 19 -p $p; done
## niceness of the user
renice 19 -u 65534; renice 19 -u $(id -u); perl -e 'setpriority(2, 0, 19)'
## niceness of the group
for p in $pids; do renice 19 -g $p; done; perl -e 'setpriority(1, 0, 19)'
## scheduler
for p in $pids; do chrt -i -p 0 $p; chrt -b -p 0 $p; done
## scheduler by a raw call
for p in $pids; do perl -e 'my $x = pack("LLQlLQQQ", 48, 5, 0, 19, 0, 0, 0, 0);
syscall($sched_setattr, int $ARGV[0], $x, 0)' $p; done
## processors
for p in $pids; do taskset -p 1 $p; taskset -a -p 2 $p; done
## disk priority
for p in $pids; do ionice -c 3 -p $p; ionice -c 3 -P $p; done; ionice -c 3 -u $(id -u)
## shared core
for p in $pids; do perl -e 'syscall($prctl, 62, 2, int $ARGV[0], 0, 0)' $p; done
## chance to be ended for memory
for p in $pids; do echo 1000 > /proc/$p/oom_score_adj; echo 15 > /proc/$p/oom_adj; done
## files of /proc
for p in $pids; do for f in autogroup timerslack_ns coredump_filter comm loginuid sched clear_refs; do
echo 5 > /proc/$p/$f; done; done
## another's memory
for p in $pids; do printf AAAA | dd of=/proc/$p/mem bs=1 seek=4194304 conv=notrunc; done
## another's memory by a raw call
for p in $pids; do perl -e 'my $x = "A" x 8; my ($v, $w) = (pack("PQ", $x, 8), pack("QQ", 4194304, 8));
syscall($process_vm_writev, int $ARGV[0], $v, 1, $w, 1, 0)' $p; done
## tracing
for p in $pids; do perl -e 'syscall($ptrace, 16, int $ARGV[0], 0, 0);
syscall($ptrace, 0x4206, int $ARGV[0], 0, 0)' $p; done
## process descriptors
for p in $pids; do perl -e 'my $f = syscall($pidfd_open, int $ARGV[0], 0);
syscall($pidfd_send_signal, $f, 19, 0, 0);
syscall($pidfd_getfd, $f, 3, 0)' $p; done
## another's pages
for p in $pids; do perl -e 'syscall($migrate_pages, int $ARGV[0], 1, 0, 0);
my $f = syscall($pidfd_open, int $ARGV[0], 0); syscall($process_madvise, $f, 0, 0, 21, 0);
syscall($move_pages, int $ARGV[0], 0, 0, 0, 0, 0)' $p; done
## comparison and locks of another
for p in $pids; do perl -e 'syscall($kcmp, int $ARGV[0], $$, 0, 0, 0); my $x = " " x 8;
syscall($get_robust_list, int $ARGV[0], $x, $x)' $p; done
## interrupt
for p in $pids; do kill -INT $p; kill -HUP $p; kill -TERM $p; kill -USR1 $p; kill -ALRM $p; done
## stop [short]
for p in $pids; do kill -STOP $p; kill -TSTP $p; kill -TTIN $p; done
## kill
for p in $pids; do kill -KILL $p; kill -KILL -$p; done
## kill all
kill -9 -1
## signals by ownership of a descriptor
perl -e 'use Fcntl; pipe(R, W); for (@ARGV) { fcntl(R, 8, int $_); fcntl(R, 10, 9);
fcntl(R, 4, 020000); syswrite(W, "x"); }' $pids
## late signals
perl -e 'if (!fork) { setpgrp; sleep 1; kill 9, $_ for @ARGV }' $pids & sleep 0.1
## ignored signals
trap '' INT TERM HUP QUIT ALRM USR1; (trap '' TERM INT HUP; sleep 600) &
## background
sleep 600 & sleep 601 & sleep 602 &
## own session
setsid sleep 600 & setsid -f sleep 601
## daemon by two forks
perl -e 'use POSIX; if (!fork) { POSIX::setsid(); if (!fork) { close STDOUT; close STDERR;
while (1) { open F, ">>", "$ENV{HOME}/late"; print F "x"; close F; sleep 1 } } exit } wait' ; sleep 0.1
## no hang-up
nohup sleep 600 > /dev/null 2>&1 &
## stopped process
sh -c 'kill -STOP $$; sleep 600' & sleep 0.1
## process that forks when it is killed
perl -e '$SIG{TERM} = sub { fork }; while (1) { fork if !($n++ % 50); select undef, undef, undef, 0.01 }' &
sleep 0.2
## fork bomb [short]
f() { f | f & f; }; f
## at and cron
echo 'touch ~/late' | at now; echo 'touch ~/late' | batch; echo '* * * * * touch ~/late' | crontab -
systemd-run --user sleep 600; echo '* * * * * x' > /var/spool/cron/crontabs/agent; echo x > /etc/cron.d/x
## files in /tmp
echo x > /tmp/x; echo x > $TMPDIR/x; mkdir -p /tmp/a/b $TMPDIR/a/b; chmod 0 $TMPDIR /tmp; echo x > /var/tmp/x
## shared memory in files
echo x > /dev/shm/x; mkdir /dev/mqueue; echo x > /run/x; echo x > /run/lock/x; echo x > /var/lock/x
## start files
for f in .bashrc .profile .bash_profile .bash_logout .shrc .zshenv .netrc .gitconfig .vimrc .inputrc; do
echo 'echo poisoned' > ~/$f; done; mkdir -p ~/.config/git ~/.ssh ~/.local/bin; cp /bin/echo ~/.local/bin/ls
## start files of all
echo 'echo poisoned' > /etc/profile; echo 'echo poisoned' > /etc/bash.bashrc; echo x > /etc/environment
## preloaded libraries
echo /tmp/x.so > /etc/ld.so.preload; echo /tmp > /etc/ld.so.conf; ldconfig; cp /bin/true /lib/x.so
export LD_PRELOAD=/tmp/x.so LD_LIBRARY_PATH=/tmp LD_AUDIT=/tmp/x.so
## variables
export ENV=$HOME/e BASH_ENV=$HOME/e PATH=$HOME:/usr/bin:/bin IFS=x PS4='$(touch ~/late)'
export PERL5OPT=-Mx PYTHONSTARTUP=x
echo 'touch ~/late' > ~/e; unset HOME TMPDIR; alias ls='touch ~/late'; set -o noglob
## forged variables
printf 'export LD_PRELOAD="/x"\nexport PATH="/x"\n/etc\n' >&9; exec 9>&-
## programs
for f in /bin/sh /usr/bin/env /usr/bin/ls; do echo x >> $f; cp /bin/true $f; chmod 777 $f; mv $f $f.x; done
## full disk
head -c 100000000 /dev/zero > big; head -c 100000000 /dev/zero > $TMPDIR/big; cp big big2
## no file left
i=0; while [ $i -lt 600 ]; do : > f$i || break; : > $TMPDIR/f$i; i=$((i+1)); done
## deep folders
mkdir -p $(printf 'd/%.0s' $(seq 300)); n=$(printf %0250d 0); i=0
while [ $i -lt 20 ] && mkdir $n && cd $n; do i=$((i+1)); done
## modes and times of the folder
chmod 7777 ~; touch -d 2001-01-01 ~ one.txt $TMPDIR; chgrp 100 ~; chown 1 ~; chmod 000 ~
## the folder itself
cd /; rm -rf ~; mv ~ ~x; ln -s /etc ~; mkdir ~/../other; rm -rf "$HOME/../tmp"; echo x > "$HOME/../x"
## flags of files
chattr +i one.txt; chattr +a ~; chattr +d +A ~; chattr -R +u ~
## attributes of files
setfattr -n user.x -v y ~; setfacl -m d:u::0 ~; setfacl -m u:1:rwx one.txt $TMPDIR
perl -e 'my ($f, $n, $v) = ($ENV{HOME}, "user.x\0", "y"); syscall($setxattr, $f, $n, $v, 1, 0)'
## devices, pipes and sockets in files
mknod c c 1 3; mkfifo p $TMPDIR/p; perl -MSocket -e 'socket S, 1, 1, 0; bind S, sockaddr_un("s"); listen S, 1'
## mounts
mount -t tmpfs x /tmp; mount --bind /etc ~; umount -l ~ /tmp /proc; mount -o remount,rw /
## namespaces
unshare -r sh -c 'mount -t tmpfs x ~; hostname x'; unshare -Urmpf --mount-proc sleep 600 &
nsenter -t 1 -a; sleep 0.1
## limits of its own
ulimit -n 3; ulimit -v 10000; ulimit -s 8; umask 777; nice -n 19 true; renice 19 $$
taskset -p 1 $$; chrt -i -p 0 $$
## control groups
mkdir /sys/fs/cgroup/x; echo $$ > /sys/fs/cgroup/x/cgroup.procs; echo 1 > /sys/fs/cgroup/pids.max
for p in $pids; do echo $p > /sys/fs/cgroup/x/cgroup.procs; done
## system settings
sysctl -w kernel.hostname=x vm.overcommit_memory=2 fs.file-max=10
for f in /proc/sys/kernel/pid_max /proc/sys/kernel/ns_last_pid /proc/sys/user/max_user_namespaces
do echo 400 > $f; done
## host name and clock
hostname poisoned; domainname poisoned; date -s 2001-01-01; hwclock --set --date 2001-01-01
## System V objects
ipcmk -M 4096; ipcmk -S 4; ipcmk -Q; ipcmk -M 4096 -p 0666
## System V objects to the limit
perl -e 'use IPC::SysV; for (1 .. 40) { shmget(0, 4096, 01666); semget(0, 9, 01666); msgget(0, 01666) }'
## message queues
perl -e 'for (1 .. 20) { my $n = "q$_\0"; syscall($mq_open, $n, 0102, 0666, 0) }'
## abstract sockets
perl -MSocket -e 'socket S, 1, 1, 0; bind S, sockaddr_un("\0poison"); listen S, 9; sleep 600' &
sleep 0.1
## ports
perl -MSocket -e 'socket S, 2, 1, 0; bind S, pack_sockaddr_in(5555, INADDR_ANY); listen S, 9; sleep 600' &
sleep 0.1
## keys
keyctl add user poison x @u; keyctl add user poison x @s
perl -e 'my ($t, $n, $x) = ("user\0", "poison\0", "x"); syscall($add_key, $t, $n, $x, 1, $_) for -4 .. -3;
print syscall($request_key, $t, $n, 0, 0), "\n"'
## locks
flock one.txt sleep 600 & flock $TMPDIR sleep 600 & perl -e 'open F, ">l"; flock F, 2; sleep 600' & sleep 0.1
## timers
perl -e 'alarm 1; use Time::HiRes; Time::HiRes::setitimer(0, 0.3, 0.3); exec "sleep", "600"' & sleep 0.1
## watches
perl -e 'my $p = "/usr\0"; for (1 .. 200) { my $f = syscall($inotify, 0); syscall($watch, $f, $p, 0xfff) }
sleep 600' & sleep 0.1
## memory
perl -e 'my @x; push @x, "x" x 30_000_000 for 1 .. 100; sleep 600' & sleep 0.2
## memory in descriptors
perl -e 'my @f; for (1 .. 100) { my $n = "x\0"; my $f = syscall($memfd, $n, 0); open my $h, ">&=", $f or last;
syswrite $h, "x" x 1000000; push @f, $h } sleep 600' & sleep 0.2
## pipes
perl -e 'my @h; for (1 .. 100) { pipe(my $r, my $w); fcntl $w, 1031, 1 << 20; push @h, $r, $w }
sleep 600' & sleep 0.1
## typing into a terminal
perl -e 'for my $f (0 .. 12, "/dev/tty", "/dev/console", "/dev/ptmx", "/dev/pts/0", "/dev/tty1") {
open(my $h, "+<" . ($f =~ /dev/ ? "" : "&=") , $f) or next;
ioctl($h, 0x5412, $_) for split //, "touch late\n" }'
script -qc 'sleep 1' /dev/null < /dev/null
## core dumps
ulimit -c unlimited; sh -c 'kill -SEGV $$'; sh -c 'kill -ABRT $$'; ls
## the whole machine
reboot -f; swapoff -a; dmesg -C; dmesg -n 1; poweroff -f; insmod x; kexec -e; echo b > /proc/sysrq-trigger
## rare calls
perl -e 'my $x = "\0" x 200; syscall($io_uring_setup, 8, $x); syscall($userfaultfd, 0);
syscall($bpf, 0, $x, 72); for my $p (@ARGV) { syscall($perf_event_open, $x, int $p, -1, -1, 0) }' $pids
## calls that are newer than the lists
perl -e 'syscall($_, 0, 0, 0, 0, 0) for 467 .. 480'
## descriptors that were inherited
for f in 3 4 5 6 7 8; do echo x >&$f; cat <&$f; done; perl -e 'for (3 .. 40) { open my $h, "+<&=", $_ and
syswrite $h, "\0\0\0\2{}" }'
## too much said
yes poisoned; yes poisoned >&2
## a loop [short]
while :; do :; done
## another's shell
exec /bin/sh -c 'exec sleep 600 &' ; exit 3
"""

#: Numbers of calls that are allowed and have no table of their own, on x86_64 and aarch64.
_OTHERS: Final = {
    "inotify": (294, 26), "watch": (254, 27), "memfd": (319, 279), "prctl": filtered.PRCTL,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Poison:
    """A command; ``short`` where it only ends by its limit of time."""

    name: str
    command: str
    short: bool = False


@dataclass(frozen=True, slots=True)
class After:
    """What came of a command: how it ended, and lines that the next episode found otherwise.

    Where the command reached the runner (``ended`` is lost), why comes first.
    """

    name: str
    ended: str
    differs: tuple[str, ...]


def _parsed() -> Iterable[Poison]:
    for block in _TEXT.strip().removeprefix("## ").split("\n## "):
        head, _, body = block.partition("\n")
        name, _, flags = head.partition(" [")
        yield Poison(name, body, "short" in flags)


POISONS: Final[tuple[Poison, ...]] = tuple(_parsed())
#: How the poisoned episode begins, and how the next one does.
FIRST: Final = ShellState.of_files({"one.txt": "1\n", "docs/a.txt": "a\n"})
NEXT: Final = ShellState.of_files({"one.txt": "1\n", "b/c.txt": "c\n"}, ["empty"])


def processes(shell: Shell) -> tuple[int, ...]:
    """Numbers of a shell's own processes, as this process sees them."""
    found = [shell.process]
    for one in found:
        with suppress(OSError):
            found += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
    return tuple(found)


def told_to(poison: Poison, shell: Shell) -> str:
    """A command with the numbers of system calls, and of the processes that it must not reach."""
    column = 1 if platform.machine() in ("aarch64", "arm64") else 0
    tables = (filtered.NEVER, filtered.ATTRIBUTES, filtered.PAST_FILES, filtered.OF_A_PROCESS, _OTHERS)
    calls = {name: str(numbers[column]) for table in tables for name, numbers in table.items()}
    pids = " ".join(map(str, ("$PPID", 1, *processes(shell))))
    named = re.sub(r"\$(\w+)", lambda one: calls.get(one[1], one[0]), poison.command)
    return f'pids="{pids}"; PATH=$PATH:/usr/sbin:/sbin; {named}'


def found(shell: Shell) -> str:
    """What a new episode finds."""
    return shell.run(NEXT, PROBE, seconds=60.0).output


def after(poison: Poison, shell: Shell, fresh: str, seconds: float = 20.0) -> After:
    """Run a command in an episode, and compare what the next finds with what a ``fresh`` process found."""
    ran = shell.run(FIRST, told_to(poison, shell), seconds=0.3 if poison.short else seconds)
    now = found(shell)
    lines = sorted(set(now.splitlines()) ^ set(fresh.splitlines()))
    differs = [*lines, *(["another order"] if now != fresh and not lines else [])]
    return After(poison.name, ran.ended, tuple([ran.output, *differs] if ran.ended == "lost" else differs))
