//! The x86-64 routines that may fault, and the place where a fault resumes them.
//!
//! All of them lie between two symbols and keep three things in fixed registers, so that one
//! resume point serves every instruction that can fault:
//!
//! * `rcx`: where to write the [`RawFault`]; never changed;
//! * `r8`: the destination as it was on entry;
//! * `rdi`: the destination now, moved on only after the bytes before it are stored.
//!
//! The signal handler (see [`super::signal`]) puts the fault's address into `rdx` and its flags
//! into `r9` and continues at `mkey_tolerant_resume`.
//!
//! `mkey_tolerant_string` counts by `rcx`; a fault finds there in `rdx` what others keep in `rcx`.
//!
//! But for that one, every store is a plain one in ascending order, so x86's total store order makes them visible
//! in that order. Vector stores are aligned to their size, so none crosses a cache line, and the
//! last 1 to 64 bytes are stored in words and parts of words: the last word is a store of its
//! own. `rep movsb`, whose stores are unordered among themselves, is used where nobody looks: it takes
//! lines that another processor's cache has without reading them first. Nowhere are there
//! non-temporal stores, as copies come in chunks that fit the caches. AVX-512 is left out:
//! valgrind cannot decode it. After a fault in the AVX loop the upper halves stay dirty until the
//! next `vzeroupper`, which costs time and nothing else.

/// What the resume point hands back about a fault.
#[repr(C)]
pub(super) struct RawFault {
    /// Bytes stored from the start of the destination, a lower bound.
    pub copied: usize,
    /// The faulting address, where the CPU gave one.
    pub address: usize,
    /// [`FAULTED`], [`ON_WRITE`], [`HAS_ADDRESS`]; zero as long as nothing faulted.
    pub flags: usize,
}

/// A fault happened.
pub(super) const FAULTED: usize = 1;
/// The access that faulted was a store.
pub(super) const ON_WRITE: usize = 2;
/// The address is the one that faulted (not so for a non-canonical address).
pub(super) const HAS_ADDRESS: usize = 4;

impl RawFault {
    pub(super) const NONE: Self = Self { copied: 0, address: 0, flags: 0 };
}

unsafe extern "C" {
    /// Copies `len` bytes; 0, or 1 after a fault.
    pub(super) fn mkey_tolerant_copy(
        dst: *mut u8,
        src: *const u8,
        len: usize,
        fault: *mut RawFault,
    ) -> usize;
    /// As [`mkey_tolerant_copy`], for CPUs with AVX.
    pub(super) fn mkey_tolerant_copy_avx(
        dst: *mut u8,
        src: *const u8,
        len: usize,
        fault: *mut RawFault,
    ) -> usize;
    /// As [`mkey_tolerant_copy`], but the bytes are seen in any order.
    pub(super) fn mkey_tolerant_string(
        dst: *mut u8,
        src: *const u8,
        len: usize,
        fault: *mut RawFault,
    ) -> usize;
    /// Copies `words` aligned 8-byte words (at least one) one at a time; 0, or 1 after a fault.
    pub(super) fn mkey_tolerant_words(
        dst: *mut u8,
        src: *const u8,
        words: usize,
        fault: *mut RawFault,
    ) -> usize;
    /// Copies `len` bytes (at least one) one at a time; 0, or 1 after a fault.
    pub(super) fn mkey_tolerant_bytes(
        dst: *mut u8,
        src: *const u8,
        len: usize,
        fault: *mut RawFault,
    ) -> usize;
    /// Loads one byte; 0, or 1 after a fault.
    pub(super) fn mkey_tolerant_touch_read(
        addr: *const u8,
        unused: usize,
        unused2: usize,
        fault: *mut RawFault,
    ) -> usize;
    /// Adds zero to one byte, atomically; 0, or 1 after a fault.
    pub(super) fn mkey_tolerant_touch_write(
        addr: *mut u8,
        unused: usize,
        unused2: usize,
        fault: *mut RawFault,
    ) -> usize;
    /// The old value of the word; meaningless if `fault.flags` was set.
    pub(super) fn mkey_tolerant_fetch_add(
        addr: *mut u64,
        add: u64,
        unused: usize,
        fault: *mut RawFault,
    ) -> u64;
    /// The old value of the word; meaningless if `fault.flags` was set.
    pub(super) fn mkey_tolerant_compare_exchange(
        addr: *mut u64,
        expected: u64,
        new: u64,
        fault: *mut RawFault,
    ) -> u64;

    /// First and one-past-last address of the instructions that may fault, and the resume point.
    fn mkey_tolerant_begin();
    fn mkey_tolerant_end();
    fn mkey_tolerant_resume();
    /// The instruction of [`mkey_tolerant_string`] that may fault.
    fn mkey_tolerant_rep();
}

/// Whether an instruction at `ip` is one of those that may fault.
#[inline]
pub(super) fn may_fault(ip: usize) -> bool {
    ip >= mkey_tolerant_begin as *const () as usize && ip < mkey_tolerant_end as *const () as usize
}

/// Whether an instruction at `ip` finds in `rdx` where to write the [`RawFault`].
#[inline]
pub(super) fn counts(ip: usize) -> bool {
    ip == mkey_tolerant_rep as *const () as usize
}

/// Where to go on after a fault.
#[inline]
pub(super) fn resume_address() -> usize {
    mkey_tolerant_resume as *const () as usize
}

core::arch::global_asm!(
    r#"
    .text
    .p2align 6
    .globl mkey_tolerant_begin
    .hidden mkey_tolerant_begin
mkey_tolerant_begin:

    .globl mkey_tolerant_copy
    .hidden mkey_tolerant_copy
    .type mkey_tolerant_copy, @function
mkey_tolerant_copy:
    .cfi_startproc
    mov r8, rdi
    cmp rdx, 8
    jb 50f
    test dil, 7
    jnz 40f
10:
    cmp rdx, 64
    ja 30f
20:
    sub rdx, 8
    jb 22f
    .p2align 4
21:
    mov rax, [rsi]
    mov [rdi], rax
    add rsi, 8
    add rdi, 8
    sub rdx, 8
    jae 21b
22:
    add rdx, 8
    jnz 60f
23:
    xor eax, eax
    ret

30:
    test dil, 8
    jz 32f
    mov rax, [rsi]
    mov [rdi], rax
    add rsi, 8
    add rdi, 8
    sub rdx, 8
    cmp rdx, 64
    jbe 20b
32:
    sub rdx, 64
    .p2align 5
31:
    movdqu xmm0, [rsi]
    movdqu xmm1, [rsi + 16]
    movdqu xmm2, [rsi + 32]
    movdqu xmm3, [rsi + 48]
    movdqa [rdi], xmm0
    movdqa [rdi + 16], xmm1
    movdqa [rdi + 32], xmm2
    movdqa [rdi + 48], xmm3
    add rsi, 64
    add rdi, 64
    sub rdx, 64
    ja 31b
    add rdx, 64
    jmp 20b

40:
    test dil, 1
    jz 41f
    mov al, [rsi]
    mov [rdi], al
    inc rsi
    inc rdi
    dec rdx
41:
    test dil, 2
    jz 42f
    mov ax, [rsi]
    mov [rdi], ax
    add rsi, 2
    add rdi, 2
    sub rdx, 2
42:
    test dil, 4
    jz 10b
    mov eax, [rsi]
    mov [rdi], eax
    add rsi, 4
    add rdi, 4
    sub rdx, 4
    jmp 10b

50:
    test rdx, rdx
    jz 23b
    test dil, 1
    jz 51f
    mov al, [rsi]
    mov [rdi], al
    inc rsi
    inc rdi
    dec rdx
51:
    test dil, 2
    jz 52f
    cmp rdx, 2
    jb 60f
    mov ax, [rsi]
    mov [rdi], ax
    add rsi, 2
    add rdi, 2
    sub rdx, 2
52:
    test dil, 4
    jz 60f
    cmp rdx, 4
    jb 60f
    mov eax, [rsi]
    mov [rdi], eax
    add rsi, 4
    add rdi, 4
    sub rdx, 4

60:
    test dl, 4
    jz 61f
    mov eax, [rsi]
    mov [rdi], eax
    add rsi, 4
    add rdi, 4
61:
    test dl, 2
    jz 62f
    mov ax, [rsi]
    mov [rdi], ax
    add rsi, 2
    add rdi, 2
62:
    test dl, 1
    jz 63f
    mov al, [rsi]
    mov [rdi], al
63:
    xor eax, eax
    ret
    .cfi_endproc
    .size mkey_tolerant_copy, . - mkey_tolerant_copy

    .globl mkey_tolerant_copy_avx
    .hidden mkey_tolerant_copy_avx
    .type mkey_tolerant_copy_avx, @function
mkey_tolerant_copy_avx:
    .cfi_startproc
    mov r8, rdi
    cmp rdx, 8
    jb 50f
    test dil, 7
    jnz 40f
10:
    cmp rdx, 64
    ja 30f
20:
    sub rdx, 8
    jb 22f
    .p2align 4
21:
    mov rax, [rsi]
    mov [rdi], rax
    add rsi, 8
    add rdi, 8
    sub rdx, 8
    jae 21b
22:
    add rdx, 8
    jnz 60f
23:
    xor eax, eax
    ret

30:
    test dil, 31
    jz 32f
    .p2align 4
31:
    mov rax, [rsi]
    mov [rdi], rax
    add rsi, 8
    add rdi, 8
    sub rdx, 8
    test dil, 31
    jnz 31b
32:
    sub rdx, 128
    jbe 34f
    .p2align 5
33:
    vmovdqu ymm0, [rsi]
    vmovdqu ymm1, [rsi + 32]
    vmovdqu ymm2, [rsi + 64]
    vmovdqu ymm3, [rsi + 96]
    vmovdqa [rdi], ymm0
    vmovdqa [rdi + 32], ymm1
    vmovdqa [rdi + 64], ymm2
    vmovdqa [rdi + 96], ymm3
    sub rsi, -128
    sub rdi, -128
    sub rdx, 128
    ja 33b
34:
    add rdx, 96
    jle 36f
    .p2align 4
35:
    vmovdqu ymm0, [rsi]
    vmovdqa [rdi], ymm0
    add rsi, 32
    add rdi, 32
    sub rdx, 32
    jg 35b
36:
    vzeroupper
    add rdx, 32
    jmp 20b

40:
    test dil, 1
    jz 41f
    mov al, [rsi]
    mov [rdi], al
    inc rsi
    inc rdi
    dec rdx
41:
    test dil, 2
    jz 42f
    mov ax, [rsi]
    mov [rdi], ax
    add rsi, 2
    add rdi, 2
    sub rdx, 2
42:
    test dil, 4
    jz 10b
    mov eax, [rsi]
    mov [rdi], eax
    add rsi, 4
    add rdi, 4
    sub rdx, 4
    jmp 10b

50:
    test rdx, rdx
    jz 23b
    test dil, 1
    jz 51f
    mov al, [rsi]
    mov [rdi], al
    inc rsi
    inc rdi
    dec rdx
51:
    test dil, 2
    jz 52f
    cmp rdx, 2
    jb 60f
    mov ax, [rsi]
    mov [rdi], ax
    add rsi, 2
    add rdi, 2
    sub rdx, 2
52:
    test dil, 4
    jz 60f
    cmp rdx, 4
    jb 60f
    mov eax, [rsi]
    mov [rdi], eax
    add rsi, 4
    add rdi, 4
    sub rdx, 4

60:
    test dl, 4
    jz 61f
    mov eax, [rsi]
    mov [rdi], eax
    add rsi, 4
    add rdi, 4
61:
    test dl, 2
    jz 62f
    mov ax, [rsi]
    mov [rdi], ax
    add rsi, 2
    add rdi, 2
62:
    test dl, 1
    jz 63f
    mov al, [rsi]
    mov [rdi], al
63:
    xor eax, eax
    ret
    .cfi_endproc
    .size mkey_tolerant_copy_avx, . - mkey_tolerant_copy_avx

    .globl mkey_tolerant_string
    .hidden mkey_tolerant_string
    .type mkey_tolerant_string, @function
mkey_tolerant_string:
    .cfi_startproc
    mov r8, rdi
    xchg rcx, rdx
    .globl mkey_tolerant_rep
    .hidden mkey_tolerant_rep
mkey_tolerant_rep:
    rep movsb
    xor eax, eax
    ret
    .cfi_endproc
    .size mkey_tolerant_string, . - mkey_tolerant_string

    .globl mkey_tolerant_words
    .hidden mkey_tolerant_words
    .type mkey_tolerant_words, @function
mkey_tolerant_words:
    .cfi_startproc
    mov r8, rdi
10:
    mov rax, [rsi]
    mov [rdi], rax
    add rsi, 8
    add rdi, 8
    dec rdx
    jnz 10b
    xor eax, eax
    ret
    .cfi_endproc
    .size mkey_tolerant_words, . - mkey_tolerant_words

    .globl mkey_tolerant_bytes
    .hidden mkey_tolerant_bytes
    .type mkey_tolerant_bytes, @function
mkey_tolerant_bytes:
    .cfi_startproc
    mov r8, rdi
10:
    mov al, [rsi]
    mov [rdi], al
    inc rsi
    inc rdi
    dec rdx
    jnz 10b
    xor eax, eax
    ret
    .cfi_endproc
    .size mkey_tolerant_bytes, . - mkey_tolerant_bytes

    .globl mkey_tolerant_touch_read
    .hidden mkey_tolerant_touch_read
    .type mkey_tolerant_touch_read, @function
mkey_tolerant_touch_read:
    .cfi_startproc
    mov r8, rdi
    mov al, [rdi]
    xor eax, eax
    ret
    .cfi_endproc
    .size mkey_tolerant_touch_read, . - mkey_tolerant_touch_read

    .globl mkey_tolerant_touch_write
    .hidden mkey_tolerant_touch_write
    .type mkey_tolerant_touch_write, @function
mkey_tolerant_touch_write:
    .cfi_startproc
    mov r8, rdi
    lock add byte ptr [rdi], 0
    xor eax, eax
    ret
    .cfi_endproc
    .size mkey_tolerant_touch_write, . - mkey_tolerant_touch_write

    .globl mkey_tolerant_fetch_add
    .hidden mkey_tolerant_fetch_add
    .type mkey_tolerant_fetch_add, @function
mkey_tolerant_fetch_add:
    .cfi_startproc
    mov r8, rdi
    mov rax, rsi
    lock xadd [rdi], rax
    ret
    .cfi_endproc
    .size mkey_tolerant_fetch_add, . - mkey_tolerant_fetch_add

    .globl mkey_tolerant_compare_exchange
    .hidden mkey_tolerant_compare_exchange
    .type mkey_tolerant_compare_exchange, @function
mkey_tolerant_compare_exchange:
    .cfi_startproc
    mov r8, rdi
    mov rax, rsi
    lock cmpxchg [rdi], rdx
    ret
    .cfi_endproc
    .size mkey_tolerant_compare_exchange, . - mkey_tolerant_compare_exchange

    .globl mkey_tolerant_end
    .hidden mkey_tolerant_end
mkey_tolerant_end:
    .globl mkey_tolerant_resume
    .hidden mkey_tolerant_resume
    .type mkey_tolerant_resume, @function
mkey_tolerant_resume:
    .cfi_startproc
    sub rdi, r8
    mov [rcx], rdi
    mov [rcx + 8], rdx
    mov [rcx + 16], r9
    mov eax, 1
    ret
    .cfi_endproc
    .size mkey_tolerant_resume, . - mkey_tolerant_resume
"#
);

#[cfg(test)]
mod tests {
    use super::*;

    /// The public copy picks one routine per CPU; both must be right.
    #[test]
    fn both_copies_are_exact_at_every_length() {
        let source: Vec<u8> = (0..2000).map(|i| (i * 13 + 1) as u8).collect();
        for (name, copy) in [
            ("sse2", mkey_tolerant_copy as unsafe extern "C" fn(_, _, _, _) -> usize),
            ("avx", mkey_tolerant_copy_avx),
        ] {
            if name == "avx" && !std::arch::is_x86_feature_detected!("avx") {
                eprintln!("SKIPPED: this CPU has no AVX");
                continue;
            }
            for at in 0..33usize {
                for len in (0..400usize).chain([511, 512, 513, 1024, 1500]) {
                    let mut target = vec![0u8; 2000];
                    let mut fault = RawFault::NONE;
                    // SAFETY: both ranges lie within the vectors; no fault can happen.
                    let rc = unsafe {
                        copy(
                            target.as_mut_ptr().add(at),
                            source.as_ptr().add(at % 7),
                            len,
                            &mut fault as *mut RawFault,
                        )
                    };
                    assert_eq!(rc, 0);
                    assert_eq!(target[at..at + len], source[at % 7..at % 7 + len]);
                    assert!(target[..at].iter().chain(&target[at + len..]).all(|&b| b == 0));
                }
            }
        }
    }
}
