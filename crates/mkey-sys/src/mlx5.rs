//! The functions of libmlx5.

use std::ffi::c_int;
use std::path::Path;
use std::sync::OnceLock;

use crate::error::LoadError;
use crate::library::{self, library};
use crate::mlx5dv::*;
use crate::types::*;
use crate::verbs::Verbs;

/// What is loaded, and how.
const MLX5: library::Source = library::Source {
    soname: "libmlx5.so.1",
    variable: "MKEY_LIBMLX5",
    package: "ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL)",
};

library! {
    /// libmlx5, loaded: the functions that make memory keys and queue pairs for UMR.
    ///
    /// The required ones are in rdma-core since version 24. Each is described in its manual page,
    /// `man 3 mlx5dv_...`. What `infiniband/mlx5dv.h` does in inline functions is in
    /// [`mlx5dv`](crate::mlx5dv).
    Mlx5;
    required {
        "MLX5_1.8" fn mlx5dv_is_supported(device: *mut ibv_device) -> bool;
        "MLX5_1.7" fn mlx5dv_open_device(
            device: *mut ibv_device,
            attr: *mut mlx5dv_context_attr,
        ) -> *mut ibv_context;
        "MLX5_1.0" fn mlx5dv_query_device(
            ctx_in: *mut ibv_context,
            attrs_out: *mut mlx5dv_context,
        ) -> c_int;
        "MLX5_1.3" fn mlx5dv_create_qp(
            context: *mut ibv_context,
            qp_attr: *mut ibv_qp_init_attr_ex,
            mlx5_qp_attr: *mut mlx5dv_qp_init_attr,
        ) -> *mut ibv_qp;
        "MLX5_1.10" fn mlx5dv_qp_ex_from_ibv_qp_ex(qp: *mut ibv_qp_ex) -> *mut mlx5dv_qp_ex;
        "MLX5_1.10" fn mlx5dv_create_mkey(
            mkey_init_attr: *mut mlx5dv_mkey_init_attr,
        ) -> *mut mlx5dv_mkey;
        "MLX5_1.10" fn mlx5dv_destroy_mkey(mkey: *mut mlx5dv_mkey) -> c_int;
    }
    optional {
        "MLX5_1.20" 36 fn _mlx5dv_mkey_check(
            mkey: *mut mlx5dv_mkey,
            err_info: *mut mlx5dv_mkey_err,
            err_info_size: usize,
        ) -> c_int;
        "MLX5_1.20" 36 fn mlx5dv_qp_cancel_posted_send_wrs(
            mqp: *mut mlx5dv_qp_ex,
            wr_id: u64,
        ) -> c_int;
        "MLX5_1.25" 54 fn mlx5dv_reg_dmabuf_mr(
            pd: *mut ibv_pd,
            offset: u64,
            length: usize,
            iova: u64,
            fd: c_int,
            access: c_int,
            mlx5_access: c_int,
        ) -> *mut ibv_mr;
    }
}

impl Mlx5 {
    /// The library of this process: loaded by the first call, never unloaded.
    ///
    /// It is `libmlx5.so.1` as the dynamic loader finds it, or the file that the environment
    /// variable `MKEY_LIBMLX5` names. It is asked for beside a libibverbs, since its functions take
    /// what that one makes. A failure is not kept: the next call tries again.
    pub fn load(_: &'static Verbs) -> Result<&'static Self, LoadError> {
        static LOADED: OnceLock<Mlx5> = OnceLock::new();
        if let Some(mlx5) = LOADED.get() {
            return Ok(mlx5);
        }
        let mlx5 = Self::resolve(&MLX5.open()?)?;
        Ok(LOADED.get_or_init(|| mlx5))
    }

    /// The library of the file `path`, for programs that choose themselves.
    ///
    /// # Safety
    /// Loading a library runs its code. The file must be a libmlx5.
    pub unsafe fn load_file(path: &Path) -> Result<Self, LoadError> {
        Self::resolve(&MLX5.open_file(path)?)
    }
}
