//! Memory that loading a model leaves behind, given back to the system.

use crate::BUILT_IN_MODEL;

/// What the machine's pages are at most, on the systems that this is for.
const PAGE_BYTES: usize = 64 << 10;

/// Gives back what the allocator holds free, some 60 MB after a model was loaded, and lets go of the pages
/// of the built-in model's file, 23 MB, which come back by themselves when they are read. Takes some
/// milliseconds: for a process that waits for its next question.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let start = BUILT_IN_MODEL.as_ptr().addr().next_multiple_of(PAGE_BYTES);
        let end = BUILT_IN_MODEL.as_ptr_range().end.addr() / PAGE_BYTES * PAGE_BYTES;
        #[expect(
            unsafe_code,
            reason = "the pages lie wholly in a constant, which the system reads again from \
                                        the program's file; the allocator may be asked at any time"
        )]
        unsafe {
            if start < end {
                let pages = BUILT_IN_MODEL.as_ptr().cast_mut().with_addr(start);
                libc::madvise(pages.cast(), end - start, libc::MADV_DONTNEED);
            }
            libc::malloc_trim(0);
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_model_is_there_after_its_pages_were_given_back() {
        let before = blake3::hash(super::BUILT_IN_MODEL);
        super::give_back();
        assert_eq!(blake3::hash(super::BUILT_IN_MODEL), before);
    }
}
