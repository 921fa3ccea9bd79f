//! Memory at chosen addresses, and the base of gs: what code under test needs of this machine's kernel.

#![allow(
    dead_code,
    reason = "each test file that includes this uses a part of it"
)]

/// Memory that is read, written and executed.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: u64,
    len: usize,
}

impl Mapping {
    /// Memory in the low 2 GiB.
    pub(crate) fn low(len: usize) -> Self {
        Self::new(0, len, libc::MAP_32BIT)
    }

    /// Memory anywhere.
    pub(crate) fn anywhere(len: usize) -> Self {
        Self::new(0, len, 0)
    }

    /// Memory at an address, which nothing is at yet.
    pub(crate) fn fixed(at: u64, len: usize) -> Self {
        let mapping = Self::new(at, len, libc::MAP_FIXED_NOREPLACE);
        assert_eq!(mapping.start, at, "the kernel knows MAP_FIXED_NOREPLACE");
        mapping
    }

    fn new(at: u64, len: usize, flags: i32) -> Self {
        #[allow(
            unsafe_code,
            reason = "memory at a chosen place that is written and executed can only be had from mmap"
        )]
        // SAFETY: a fresh anonymous mapping that replaces none.
        let memory = unsafe {
            libc::mmap(
                at as *mut libc::c_void,
                len,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        assert_ne!(
            memory,
            libc::MAP_FAILED,
            "no executable memory: {}",
            std::io::Error::last_os_error()
        );
        Self {
            start: memory as u64,
            len,
        }
    }

    /// The address of its first byte.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// All of it.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        #[allow(unsafe_code, reason = "the mapping is plain memory")]
        // SAFETY: the mapping has `len` bytes, lives until `self` is dropped, and is borrowed mutably with it; code
        // that writes it runs only inside functions that borrow its owner mutably too.
        unsafe {
            std::slice::from_raw_parts_mut(self.start as *mut u8, self.len)
        }
    }

    /// Copies bytes to an offset.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.bytes()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// The 64-bit word at an offset.
    pub(crate) fn word(&mut self, offset: u64) -> u64 {
        u64::from_le_bytes(self.bytes()[offset as usize..][..8].try_into().unwrap())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[allow(unsafe_code, reason = "gives the mapping back")]
        // SAFETY: mapped in `new` with the same size, and no borrow of it outlives `self`.
        unsafe {
            libc::munmap(self.start as *mut libc::c_void, self.len);
        }
    }
}

/// Sets where per-CPU words are, for this thread.
pub(crate) fn set_gs(base: u64) {
    const ARCH_SET_GS: i32 = 0x1001;
    #[allow(unsafe_code, reason = "sets the base of per-CPU words")]
    // SAFETY: user space on x86-64 Linux reaches thread-local data by fs; nothing but the code under test uses gs.
    let set = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, base) };
    assert_eq!(set, 0);
}
