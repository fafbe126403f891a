//! Programs that load libibverbs by themselves, and plug-ins.

use crate::c::{HEAD, build, build_short, build_with};
use crate::{ended, mkey_run, succeeds};

/// As Python's ctypes and NCCL do: by name, by path, by symbol version.
#[test]
fn a_program_that_loads_libibverbs_finds_the_devices() {
    let test = "a_program_that_loads_libibverbs_finds_the_devices";
    let source = include_str!("../c/load.c");
    let Some(program) = build_with(test, &format!("{HEAD}\n{source}"), &["-ldl"]) else { return };
    let text = succeeds(mkey_run(&["--only"]).arg(program.path()));
    assert_eq!(text, "mkey0 success\n".repeat(6));
}

#[test]
fn a_python_program_that_loads_libibverbs_finds_the_devices() {
    let test = "a_python_program_that_loads_libibverbs_finds_the_devices";
    if !crate::has(test, "python3") {
        return;
    }
    let script = "import ctypes\nverbs = ctypes.CDLL('libibverbs.so.1')\n\
                  verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)\n\
                  verbs.ibv_get_device_name.restype = ctypes.c_char_p\n\
                  verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]\n\
                  print(verbs.ibv_get_device_name(verbs.ibv_get_device_list(None)[0]).decode())";
    assert_eq!(succeeds(&mut mkey_run(&["--only", "python3", "-c", script])), "mkey0\n");
}

/// A plug-in that is to look into its own libraries first would call the real functions.
#[test]
fn a_plug_in_that_looks_into_its_own_libraries_first_finds_the_devices() {
    let test = "a_plug_in_that_looks_into_its_own_libraries_first_finds_the_devices";
    let plugin =
        "const char *first(void)\n{\n\treturn ibv_get_device_name(open_first()->device);\n}\n";
    let shared = ["-shared", "-fPIC", "-libverbs"];
    let Some(plugin) = build_with(test, &format!("{HEAD}\n{plugin}"), &shared) else { return };
    let host = "#include <dlfcn.h>\nint main(int count, char **arguments)\n{\n\t\
                void *plugin = dlopen(arguments[count - 1], RTLD_NOW | RTLD_DEEPBIND);\n\t\
                CHECK(plugin);\n\tputs(((const char *(*)(void))dlsym(plugin, \"first\"))());\n\t\
                return 0;\n}\n";
    let Some(host) = build_with(test, &format!("{HEAD}\n{host}"), &["-ldl"]) else { return };
    let text = succeeds(mkey_run(&["--only"]).arg(host.path()).arg(plugin.path()));
    assert_eq!(text, "mkey0\n");
}

/// The real `dlopen` looks where its caller says, which is not us.
#[test]
fn a_library_is_found_on_the_search_path_of_who_asks() {
    let test = "a_library_is_found_on_the_search_path_of_who_asks";
    let shared = ["-shared", "-fPIC"];
    let Some(plugin) = build_with(test, "int answer(void) { return 42; }\n", &shared) else {
        return;
    };
    let host = "#include <dlfcn.h>\nint main(void)\n{\n\tvoid *plugin = dlopen(\"program\", RTLD_NOW);\n\
                \n\tCHECK(plugin);\n\treturn ((int (*)(void))dlsym(plugin, \"answer\"))();\n}\n";
    let path = format!("-Wl,-rpath,{}", plugin.path().parent().unwrap().display());
    let Some(host) = build_with(test, &format!("{HEAD}\n{host}"), &["-ldl", &path]) else { return };
    let (code, _, stderr) = crate::ended(&mut mkey_run(&[host.path()]));
    assert_eq!(code, 42, "{stderr}");
}

/// gcc's sanitizer refuses to start behind another library.
#[test]
fn a_program_with_a_sanitizer_runs() {
    let test = "a_program_with_a_sanitizer_runs";
    let source =
        "int main(void)\n{\n\tputs(ibv_get_device_name(open_first()->device));\n\treturn 0;\n}\n";
    let arguments = ["-fsanitize=address", "-libverbs"];
    let Some(program) = build_with(test, &format!("{HEAD}\n{source}"), &arguments) else { return };
    let mut command = mkey_run(&["--only"]);
    // What stays open at the end is no leak of interest here.
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    assert_eq!(succeeds(command.arg(program.path())), "mkey0\n");
}

/// Calls that were compiled against the library's first version are for the real one, which knows
/// the structures of that time.
#[test]
fn names_and_versions_of_old_are_left_alone() {
    let test = "names_and_versions_of_old_are_left_alone";
    let source = "#include <dlfcn.h>\nint main(void)\n{\n\t\
                  void *real = dlopen(\"libibverbs.so.1\", RTLD_NOW), *old, *now;\n\n\t\
                  CHECK(real);\n\told = dlvsym(real, \"ibv_get_device_list\", \"IBVERBS_1.0\");\n\t\
                  now = dlvsym(real, \"ibv_get_device_list\", \"IBVERBS_1.1\");\n\t\
                  CHECK(old && now && old != now);\n\tCHECK(now == (void *)ibv_get_device_list);\n\t\
                  return 0;\n}\n";
    let Some(program) = build(test, &format!("{HEAD}\n{source}")) else { return };
    succeeds(&mut mkey_run(&[program.path()]));
}

/// Threads of ours take none of the program's signals, and a wait ends when its handler has run.
#[test]
fn signals_are_the_program_s() {
    let test = "signals_are_the_program_s";
    let Some(program) = build_short(test, include_str!("../c/signals.c")) else { return };
    let (code, stdout, stderr) = ended(&mut mkey_run(&[program.path()]));
    assert_eq!((code, &*stdout), (0, "taken\n"), "{stderr}");
    // Its peer does not answer, of which a completion can not say why.
    let said = "mkey: no answer: queue pair 0x";
    assert!(stderr.starts_with(said) && stderr.contains("had none from"), "{stderr}");
}
