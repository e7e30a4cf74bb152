//! Memory that loading a model leaves behind, given back to the system.

use crate::BUILT_IN_MODEL;

/// What the machine's pages are at most, on the systems that this is for.
const PAGE_BYTES: usize = 64 << 10;

/// Gives back what the allocator holds free, some 60 MB after a model was loaded, and lets go of the pages
/// of the built-in model's files, 23 MB, which come back by themselves when they are read. Takes some
/// milliseconds: for a process that waits for its next question.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let_go(BUILT_IN_MODEL);
        #[expect(unsafe_code, reason = "the allocator may be asked at any time")]
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

/// And lets go of the pages of the program's instructions and its libraries', some 30 MB. To bring back what a
/// question needs of them takes 20 to 30 ms: for a process that has not been asked for a while.
pub fn give_back_all() {
    give_back();
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    instructions().into_iter().for_each(|(start, end)| let_go_of_pages(start, end));
}

/// Lets go of the pages that lie wholly in a constant of the program.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn let_go(constant: &'static [u8]) {
    let start = constant.as_ptr().addr().next_multiple_of(PAGE_BYTES);
    let end = constant.as_ptr_range().end.addr() / PAGE_BYTES * PAGE_BYTES;
    if start < end {
        let_go_of_pages(start, end);
    }
}

/// From one page's start to another's: of a file, and never written to.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn let_go_of_pages(start: usize, end: usize) {
    let pages = std::ptr::with_exposed_provenance_mut(start);
    #[expect(unsafe_code, reason = "the system reads them again from their file")]
    unsafe {
        libc::madvise(pages, end - start, libc::MADV_DONTNEED);
    }
}

/// Where the instructions of the program and of its libraries lie: what is of a file and may be run, and so was
/// never written to. Constants are not among them, for those that hold addresses were written to when the program
/// began.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn instructions() -> Vec<(usize, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let range = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let is_theirs = fields.next()? == "r-xp" && fields.nth(3)?.starts_with('/');
        let address = |text| usize::from_str_radix(text, 16).ok();
        is_theirs.then_some((address(start)?, address(end)?))
    };
    maps.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_model_is_there_after_its_pages_were_given_back() {
        let before = blake3::hash(super::BUILT_IN_MODEL);
        super::give_back();
        assert_eq!(blake3::hash(super::BUILT_IN_MODEL), before);
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn the_instructions_that_are_not_needed_are_given_back() {
        let resident = || {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let mut is_run = false;
            let mut kib = 0;
            for line in maps.lines() {
                if let Some(resident) = line.strip_prefix("Rss:").filter(|_| is_run) {
                    kib += resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
                } else if line.contains(" r-xp ") || line.contains(" r--p ") || line.contains(" rw-p ") {
                    is_run = line.contains(" r-xp ") && line.contains('/');
                }
            }
            kib
        };
        // Most of what is run to load a tokenizer is not run again.
        drop(crate::Tokenizer::load(&crate::Settings::default()).unwrap());
        let before = resident();
        assert!(super::instructions().len() > 1, "its own, and those of the system's library");
        super::give_back_all();
        let after = resident();
        assert!(after < before, "{after} KiB of {before}");
        drop(crate::Tokenizer::load(&crate::Settings::default()).unwrap());
    }
}
