//! Gives back memory whose content can be read again.

/// Takes a constant of the program out of this process's memory. Whoever reads it next gets it from the system's copy of
/// the program's file, or from the file. Does nothing on other systems than Linux, and for what lies in no file.
pub fn release_constant(constant: &'static [u8]) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let page = rustix::param::page_size();
        let address = constant.as_ptr() as usize;
        let start = address.next_multiple_of(page);
        let end = (address + constant.len()) / page * page;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        if start >= end || !maps.lines().any(|line| is_constant_of_file(line, start, end)) {
            return;
        }
        #[expect(unsafe_code, reason = "no library offers this for a part of the program")]
        // SAFETY: the pages lie whole within bytes that are mapped from a file and that nobody may write, so that they have
        // the file's content, which they get again when they are read.
        unsafe {
            let start = constant.as_ptr().wrapping_add(start - address);
            libc::madvise(start.cast_mut().cast(), end - address.next_multiple_of(page), libc::MADV_DONTNEED);
        }
    }
}

/// Whether a line of `/proc/self/maps` says that these addresses are of a file, and read-only.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn is_constant_of_file(line: &str, start: usize, end: usize) -> bool {
    let mut fields = line.split_whitespace();
    let Some((from, to)) = fields.next().and_then(|range| range.split_once('-')) else { return false };
    let covers = |from: usize, to: usize| from <= start && end <= to;
    let is_in = usize::from_str_radix(from, 16)
        .is_ok_and(|from| usize::from_str_radix(to, 16).is_ok_and(|to| covers(from, to)));
    // The mode, the offset, the device and the file's number.
    is_in && fields.next() == Some("r--p") && fields.nth(2).is_some_and(|file| file != "0")
}

#[cfg(test)]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    const LEN: usize = 4 << 20;
    static CONSTANT: [u8; LEN] = [7; LEN];

    /// The resident KiB of the mapping of an address.
    fn resident_kib(address: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let lines = maps.lines().skip_while(|line| {
            let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
            let number = |text: &str| usize::from_str_radix(text, 16).ok();
            let range = range.and_then(|(from, to)| Some(number(from)?..number(to)?));
            !range.is_some_and(|range| range.contains(&address))
        });
        let resident = lines.filter_map(|line| line.strip_prefix("Rss:")).next().unwrap();
        resident.trim().trim_end_matches(" kB").parse().unwrap()
    }

    fn is_whole(bytes: &[u8]) -> bool {
        std::hint::black_box(bytes).iter().all(|&byte| byte == 7)
    }

    #[test]
    fn a_constant_leaves_the_memory_and_is_read_again() {
        assert!(is_whole(&CONSTANT));
        let before = resident_kib(CONSTANT.as_ptr() as usize);
        release_constant(&CONSTANT);
        let after = resident_kib(CONSTANT.as_ptr() as usize);
        // Other tests read other constants meanwhile.
        assert!(before >= after + (LEN >> 10) / 2, "{before} KiB, then {after} KiB");
        assert!(is_whole(&CONSTANT));
    }

    #[test]
    fn what_lies_in_no_file_is_kept() {
        let bytes: &'static [u8] = Box::leak(vec![7; LEN].into_boxed_slice());
        release_constant(bytes);
        assert!(is_whole(bytes));
    }
}
