//! The packages in clean Debian roots: installed, used and removed.

use std::fs;
use std::path::PathBuf;

use crate::fail::{Fail, Result};
use crate::{root, tool};

use super::VERSION;

/// Packages of the root beside debootstrap's minimum: headers for the module, and a manager that checks units.
const PACKAGES: &str = "ca-certificates,systemd,linux-headers-cloud-amd64";

/// Every step, with what it shows. `$VERSION` is the packages' version.
const STEPS: [(&str, &str); 10] = [
    (
        "the packages install with what they depend on, and the module is built",
        "cp -r /etc/passwd /etc/group /root/
         apt-get -qq update
         apt-get -qq install --yes --no-install-recommends /packages/*.deb
         dkms status -m ilk -v $VERSION | tee /root/dkms
         grep -q ': installed' /root/dkms
         modinfo -F license $(find /lib/modules -name 'ilk.ko*') | grep -q GPL
         if modinfo -F parm $(find /lib/modules -name 'ilk.ko*') | grep fail_; then exit 1; fi",
    ),
    (
        "dkms builds the module for each flavour of the release's kernel and of the newest in its archive",
        "number=$(. /etc/os-release; echo $VERSION_ID)
         suite=$(. /etc/os-release; echo $VERSION_CODENAME)
         mirror=$(sed -n 's/^deb \\([^ ]*\\) .*/\\1/p' /etc/apt/sources.list | head -n 1)
         more=/etc/apt/sources.list.d/more.list
         flavours='amd64 cloud-amd64 rt-amd64'
         # Headers may bring their kernel, which no machine boots here.
         export INITRD=No
         install() { apt-get -qq install --yes --no-install-recommends \"$@\"; }
         install $(printf 'linux-headers-%s ' $flavours)
         if test $number = 12; then
             echo \"deb $mirror-security $suite-security main\" >$more
             apt-get -qq update
             install $(printf 'linux-headers-6.12-%s ' $flavours)
         else
             echo \"deb $mirror $suite-backports main\" >$more
             apt-get -qq update
             install -t $suite-backports $(printf 'linux-headers-%s ' $flavours)
         fi
         dkms status -m ilk -v $VERSION
         ls /lib/modules >/root/releases
         test $(wc -l </root/releases) -ge 6
         for release in $(cat /root/releases); do
             dkms status -m ilk -v $VERSION -k $release | grep -q ': installed'
             test -s $(find /lib/modules/$release -name 'ilk.ko*')
         done
         rm $more /root/releases
         apt-get -qq update",
    ),
    (
        "the programs start",
        "ilk --version | grep -qx \"ilk $VERSION\"
         gilk --version | grep -qx \"gilk $VERSION\"
         ilk instrument check --help >/dev/null",
    ),
    (
        "doctor finds the module that was built, where it is for the running kernel",
        "ilk doctor >/root/doctor || test $? = 1
         grep -q agent /root/doctor",
    ),
    (
        "the units are valid, the service has what it needs and little else, and the socket is to start with the machine",
        "systemd-analyze verify --man=no ilk.socket ilk.service 2>&1 | grep -i ilk && exit 1
         systemd-analyze security --no-pager --offline=yes --threshold=45 ilk.service
         test -L /etc/systemd/system/sockets.target.wants/ilk.socket
         getent group ilk",
    ),
    (
        "the agent serves a socket that systemd passes",
        "systemd-socket-activate -l /run/trial.sock /usr/bin/ilk agent --group ilk &
         manager=$!
         while ! test -S /run/trial.sock; do sleep 0.1; done
         ilk status --socket /run/trial.sock
         kill $manager",
    ),
    (
        "completions and manual pages are there and whole",
        "bash -n /usr/share/bash-completion/completions/ilk
         test -s /usr/share/zsh/vendor-completions/_ilk
         test -s /usr/share/fish/vendor_completions.d/ilk.fish
         for page in man1/ilk.1 man1/ilk-run.1 man7/ilk-language.7 man1/gilk.1; do
             gzip -t /usr/share/man/$page.gz || test -e /etc/dpkg/dpkg.cfg.d/docker
         done",
    ),
    (
        "the lab runs without the source tree",
        ". /etc/os-release
         elf=libelf1t64
         if test $VERSION_ID = 12; then elf=libelf1; fi
         apt-get -qq install --yes --no-install-recommends qemu-system-x86 busybox-static make gcc \\
             xz-utils $elf
         cd /root
         test -s /usr/share/gilk/sessions/pulsar.ron
         echo 'entry:__x64_sys_clone { @forks = count() }' >forks
         ilk script forks --lab -c '/bin/pulsar 100' -o /root/pulsar.arrow >counted
         cat counted
         grep -qw 160 counted
         ilk stats /root/pulsar.arrow >/root/stats
         grep -q __x64_sys_clone /root/stats",
    ),
    (
        "in a machine that systemd starts, users of the group instrument its kernel by the confined agent, and others \
         may not connect",
        include_str!("../../package/machine.sh"),
    ),
    (
        "nothing stays after the packages are purged",
        "rm -rf /root/.cache /root/pulsar.arrow /root/forks
         apt-get -qq purge --yes ilk gilk ilk-dkms
         if getent group ilk; then exit 1; fi
         find / -xdev \\( -path /proc -o -path /sys -o -path /dev -o -path /packages -o -path /opt \\) -prune -o \\
             \\( -name '*ilk*' -a ! -name '*silk*' -a ! -name '*milk*' \\) -print | tee /root/left
         test ! -s /root/left",
    ),
];

/// Makes a root of a release, and goes through all steps there.
pub(super) fn run(suite: &str, packages: &[PathBuf]) -> Result<()> {
    let home = tool::root().join("target/gilk/package-trial").join(suite);
    root::install(suite, &home, PACKAGES)?;
    let goal = home.join("packages");
    fs::create_dir_all(&goal)
        .map_err(|error| Fail::new(format!("cannot create {}: {error}", goal.display())))?;
    for package in packages {
        let name = package.file_name().unwrap_or_default();
        fs::copy(package, goal.join(name))
            .map_err(|error| Fail::new(format!("cannot copy {}: {error}", package.display())))?;
    }
    let variables = [("VERSION", VERSION), ("DEBIAN_FRONTEND", "noninteractive")];
    for (what, script) in STEPS {
        println!("  {suite}: {what}");
        root::run(&home, &[], &variables, &format!("set -eu\n{script}"))
            .map_err(|_| Fail::new(format!("in a clean {suite} it does not hold that {what}")))?;
    }
    Ok(())
}
