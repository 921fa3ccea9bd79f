//! Programs of this machine and their work: text that they read from their standard input.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// A program and its work, in which `ROUNDS` stands for a number.
pub(crate) struct Work {
    pub(crate) name: &'static str,
    program: Program,
    pub(crate) arguments: &'static [&'static str],
    input: fn(rounds: u32) -> Vec<u8>,
}

/// The place of a program.
enum Program {
    /// A path: what the shell finds by a name may be a script that executes another program.
    Installed(&'static str),
    /// The source of one that is compiled.
    Source(&'static str),
}

pub(crate) const WORKS: [Work; 5] = [
    Work {
        name: "branches",
        program: Program::Source(BRANCHES),
        arguments: &[],
        input: |rounds| format!("{rounds}\n").into_bytes(),
    },
    Work {
        name: "gzip",
        program: Program::Installed("/usr/bin/gzip"),
        arguments: &["-c"],
        input: words,
    },
    Work {
        name: "sqlite3",
        program: Program::Installed("/usr/bin/sqlite3"),
        arguments: &[],
        input: |rounds| SQL.repeat(rounds as usize).into_bytes(),
    },
    Work {
        name: "perl",
        program: Program::Installed("/usr/bin/perl"),
        arguments: &[],
        input: |rounds| PERL.replace("ROUNDS", &rounds.to_string()).into_bytes(),
    },
    Work {
        name: "python3",
        program: Program::Installed("/usr/bin/python3"),
        arguments: &[],
        input: |rounds| PYTHON.replace("ROUNDS", &rounds.to_string()).into_bytes(),
    },
];

impl Work {
    /// The input for a number of rounds, each of which takes a tenth to a half of a second natively.
    pub(crate) fn input(&self, rounds: u32) -> Vec<u8> {
        (self.input)(rounds)
    }

    /// Returns the path of the program, which is compiled in a folder if it is not installed.
    pub(crate) fn path(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        match self.program {
            Program::Installed(path) => Ok(path.into()),
            Program::Source(source) => {
                let (file, program) = (folder.join("source.c"), folder.join(self.name));
                std::fs::write(&file, source)?;
                let mut cc = Command::new("cc");
                let status = cc.arg("-O2").arg("-o").args([&program, &file]).status();
                ensure!(
                    status.context("cc does not start")?.success(),
                    "cc refuses {}",
                    self.name
                );
                Ok(program)
            }
        }
    }
}

/// Small blocks: branches on bits of random numbers, a `switch`, calls through pointers and recursion.
const BRANCHES: &str = r#"
#include <stdio.h>
static unsigned long state = 1;
static unsigned next(void) { return (state = state * 0x5851f42d4c957f2d + 1) >> 33; }
static unsigned long add(unsigned long a, unsigned b) { return a + b; }
static unsigned long mix(unsigned long a, unsigned b) { return (a ^ b) * 3; }
static unsigned long turn(unsigned long a, unsigned b) { return a << (b & 7) | a >> (64 - (b & 7)) % 64; }
static unsigned long (*const way[])(unsigned long, unsigned) = { add, mix, turn, add };
__attribute__((noinline)) static unsigned fib(unsigned n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int main(void) {
    unsigned rounds;
    if (scanf("%u", &rounds) != 1)
        return 1;
    unsigned long sum = 0, odd = 0;
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned n = 0; n < 12000000; n++) {
            unsigned value = next();
            if (value & 1) odd++;
            if ((value & 6) == 6) sum += value;
            switch (value >> 3 & 7) {
            case 0: sum ^= value; break;
            case 1: sum += 3 * odd; break;
            case 2: sum -= value >> 9; break;
            case 3: odd ^= 5; break;
            case 4: sum = sum * 17 + 1; break;
            case 5: sum += odd & 0xff; break;
            default: break;
            }
            sum = way[value >> 6 & 3](sum, value);
        }
        sum += fib(31);
        printf("%lu %lu\n", sum, odd);
    }
    return 0;
}
"#;

/// Inserts, an index, an aggregate and a search.
const SQL: &str = "
create table t(a integer primary key, b text, c integer);
with recursive n(i) as (select 1 union all select i+1 from n where i<150000)
  insert into t select i, 'row '||i, (i*7919)%10007 from n;
create index tc on t(c);
select count(*), sum(c), max(b) from t where c between 1000 and 6000;
select c%100, count(*), avg(a) from t group by 1 order by 2 desc limit 5;
select length(group_concat(upper(b))) from t where b like '%77%';
drop table t;
";

/// Hashes, regular expressions and strings.
const PERL: &str = r#"
for my $round (1..ROUNDS) {
    my %h; my $s = 0;
    for my $i (1..400000) {
        my $k = "k" . ($i % 5003);
        $h{$k} += $i;
        $s += length($1) if $k =~ /^k(\d+)7$/;
    }
    my $j = join(",", map { "$_=$h{$_}" } sort keys %h);
    $j =~ s/(\d+)=(\d+)/$2:$1/g;
    print length($j), " $s\n";
}
"#;

/// Dictionaries, regular expressions, strings and objects.
const PYTHON: &str = r#"
import re
class A:
    def __init__(self, x): self.x = x
    def f(self, y): return self.x * y + 1
def work():
    d = {}
    s = t = 0
    for i in range(240000):
        k = "k%d" % (i % 5003)
        d[k] = d.get(k, 0) + i
        m = re.match(r"k(\d+)7$", k)
        if m: s += len(m.group(1))
    j = ",".join("%s=%d" % (k, d[k]) for k in sorted(d))
    j = re.sub(r"(\d+)=(\d+)", lambda m: m.group(2) + ":" + m.group(1), j)
    for i in range(200000): t += A(i).f(3)
    return len(j), s, t
for round in range(ROUNDS): print(*work())
"#;

/// Text of words of two to nine letters: the same each time.
fn words(rounds: u32) -> Vec<u8> {
    // Knuth's generator (MMIX).
    let mut state = 1_u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 33) % below
    };
    let mut dictionary: Vec<Vec<u8>> = Vec::new();
    for _ in 0..5000 {
        let letters = 2 + next(8);
        let letters = (0..letters).filter_map(|_| u8::try_from(next(16)).ok());
        dictionary.push(letters.map(|number| b'a' + number).collect());
    }
    let mut text = Vec::new();
    for _ in 0..u64::from(rounds) * 500_000 {
        let word = dictionary.get(next(5000) as usize);
        text.extend(word.into_iter().flatten());
        text.push(b' ');
    }
    text
}
