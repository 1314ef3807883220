"""The programs that run other programs, and the options by which others do: an allow ending in ` *` covers none."""

from __future__ import annotations

from typing import Final

OPTIONS: Final = {
    program: frozenset(options.split())
    for programs, options in {
        # shells and languages, whose first argument is a program
        "sh ash bash dash zsh ksh mksh fish csh tcsh busybox toybox cmd powershell pwsh awk gawk mawk nawk sed": "*",
        "gsed ed ex emacs nano tclsh wish expect osascript gdb lldb": "*",
        # programs whose arguments are another command
        "env xargs parallel entr watch sudo doas su runuser pkexec setpriv capsh chroot unshare nsenter bwrap": "*",
        "firejail proot fakeroot nice ionice chrt taskset nohup setsid timeout time stdbuf unbuffer script flock": "*",
        "strace ltrace perf valgrind exec eval command builtin source run-parts start-stop-daemon systemd-run": "*",
        "at batch crontab dbus-run-session xvfb-run rlwrap wine socat ssh mosh tmux screen ldd ansible": "*",
        "npx bunx uvx pipx xdg-open open start": "*",
        # programs that run others with some options
        "git": "-c -C --config-env --exec-path --git-dir --work-tree --upload-pack --receive-pack --exec --extcmd "
        "--open-files-in-pager --ext-diff --template --sendmail-cmd config bisect submodule filter-branch difftool "
        "mergetool",
        "git clone": "-u",
        "git grep": "-O",
        "git rebase": "-x -i",
        "hg": "--config",
        "svn": "--diff-cmd --diff3-cmd --editor-cmd --merge-cmd --config-option --config-dir",
        "gh": "alias extension",
        "find": "-exec -execdir -ok -okdir",
        "fd fdfind": "-x -X --exec --exec-batch",
        "rg": "--pre --hostname-bin",
        "ag ack": "--pager",
        "sort": "--compress-program",
        "split": "--filter",
        "sdiff diff3": "--diff-program",
        "patch": "-e --ed",
        "install": "-s --strip-program",
        "tar gtar bsdtar": "-I -F --to-command --checkpoint-action --use-compress-program --info-script "
        "--new-volume-script --rsh-command --rmt-command",
        "cpio": "--rsh-command",
        "zip": "-T --test --unzip-command",
        "rsync": "-e --rsh --rsync-path",
        "scp sftp": "-o -F -S -D",
        "wget": "-e --execute --config --use-askpass",
        "curl": "-K --config --engine",
        "nc ncat netcat": "-c -e --exec --sh-exec --lua-exec",
        "nmap": "--script --datadir",
        "tcpdump": "-z",
        "ip": "netns -b",
        "man": "-P -H -C --pager --html --config-file",
        "less": "+ -k -o --lesskey-file --lesskey-src --lesskey-content",
        "more most": "+",
        "vi vim view nvim vimdiff gvim rvim": "+ -c -S -s -u -U -w -W -V -l --cmd --startuptime",
        "journalctl systemctl": "edit",
        "mail mailx": "-S -A",
        "mysql mariadb": "-e --execute --pager --init-command",
        "psql": "-c -f --command --file",
        "sqlite3": "-cmd -init",
        "apt apt-get aptitude": "-o -c --option --config-file",
        "dpkg": "--pre-invoke --post-invoke --status-logger",
        "rpm": "-E -D --eval --define --pipe --load",
        "docker podman nerdctl": "run exec",
        "kubectl": "run exec debug",
        "helm": "--post-renderer plugin",
        "make gmake": "= -f -C -E -I --file --makefile --directory --eval --include-dir",
        "just": "-f -d --shell --shell-arg --command --justfile --working-directory --set",
        "gcc g++ cc c++ clang clang++": "-wrapper -fplugin -specs -B --specs -load",
        "cargo": "--config",
        "go": "-exec -toolexec -vettool -overlay run generate tool",
        "npm pnpm yarn": "exec x dlx --script-shell --node-options",
        "uv poetry pdm hatch pipenv rye conda bundle": "run exec tool",
        "gradle gradlew": "-I --init-script",
        "mvn": "exec:exec exec:java",
        "python pypy": "-c",
        "node nodejs": "-e -p -r --eval --print --require --import --loader",
        "deno bun": "-e -p -x --eval --print eval",
        "perl": "-e -E -M -m -d",
        "ruby": "-e -r",
        "php": "-r -B -R -E -F -d",
        "lua luajit": "-e -l",
        "exiftool": "-if -config",
        "pandoc": "-F -L --filter --lua-filter --pdf-engine",
        "tex latex pdftex pdflatex xelatex lualatex": "-shell-escape -enable-write",
        "openssl": "-engine -provider",
    }.items()
    for program in (programs.split() if not programs.startswith("git ") else [programs])
}
"""The options of programs, by program, or by program and subcommand; `*` is anything at all.

A letter behind one dash is also found among others, and a long option in every shortened form. `+` is any word that
begins so, `=` is any variable, and a word without a dash is a subcommand. Versions in the name of a program
(`python3.12`) do not count.
"""

BUNDLED: Final = frozenset({"tar", "gtar", "bsdtar"})
"""Programs whose first argument is a bundle of letters, with or without a dash."""
