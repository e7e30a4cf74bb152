//! Configures the C library's allocator: a server runs beside every session all day.

/// Limits the C library to two arenas and makes it return blocks of 128 KiB and more to the system.
///
/// By default it creates up to 8 arenas per core, and it raises its threshold for blocks that are returned to 32 MB, so
/// that what an answer or a rebuild of the index needed stays in the heap of an idle server.
pub fn configure() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "the C library has no other interface for this")]
        // SAFETY: called before any other thread is started; unknown parameters are ignored.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 2);
            libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
            libc::mallopt(libc::M_TRIM_THRESHOLD, 128 << 10);
        }
    }
}
