//! Users and groups of this machine: lines of `name:password:number:…` (passwd(5), group(5)).

/// Returns the number and the name of each entry of `/etc/passwd` or `/etc/group`; lines of another form are left out.
pub(crate) fn entries(text: &str) -> impl Iterator<Item = (u32, &str)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((fields.nth(1)?.parse().ok()?, name))
    })
}
