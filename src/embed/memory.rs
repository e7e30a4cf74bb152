//! Memory that loading a model leaves behind, given back to the system.

use crate::{BUILT_IN_MODEL, BUILT_IN_WORDS};

/// What the machine's pages are at most, on the systems that this is for.
const PAGE_BYTES: usize = 64 << 10;

/// Gives back what the allocator holds free, some 60 MB after a model was loaded, and lets go of the pages
/// of the built-in model's files, 23 MB, which come back by themselves when they are read. Takes some
/// milliseconds: for a process that waits for its next question.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let_go(BUILT_IN_MODEL);
        let_go(BUILT_IN_WORDS);
        #[expect(unsafe_code, reason = "the allocator may be asked at any time")]
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

/// Lets go of the pages that lie wholly in a constant of the program.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn let_go(constant: &'static [u8]) {
    let start = constant.as_ptr().addr().next_multiple_of(PAGE_BYTES);
    let end = constant.as_ptr_range().end.addr() / PAGE_BYTES * PAGE_BYTES;
    if start < end {
        let pages = constant.as_ptr().cast_mut().with_addr(start);
        #[expect(unsafe_code, reason = "the system reads them again from the program's file")]
        unsafe {
            libc::madvise(pages.cast(), end - start, libc::MADV_DONTNEED);
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_model_is_there_after_its_pages_were_given_back() {
        let files = [super::BUILT_IN_MODEL, super::BUILT_IN_WORDS];
        let before = files.map(blake3::hash);
        super::give_back();
        assert_eq!(files.map(blake3::hash), before);
    }
}
