# A Nix flake: `nix run 'git+file:.?dir=scripts/packaging'` from a clone.
# It is a shell with what the set-up script needs, and runs that script: Python packages come from
# the package index into .venv, because nixpkgs has other releases of llama-cpp-python.
{
  description = "Terminal chat with lossless speculative decoding, on llama.cpp";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "x86_64-darwin" "aarch64-darwin" ];
      for = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
      tools = pkgs: [ pkgs.python313 pkgs.stdenv.cc ];
    in
    {
      devShells = for (pkgs: {
        default = pkgs.mkShell {
          packages = tools pkgs;
          LD_LIBRARY_PATH = pkgs.lib.makeLibraryPath [ pkgs.stdenv.cc.cc.lib pkgs.zlib ];
        };
      });

      packages = for (pkgs: {
        default = pkgs.writeShellApplication {
          name = "specchat";
          runtimeInputs = tools pkgs;
          text = ''
            export LD_LIBRARY_PATH=${pkgs.lib.makeLibraryPath [ pkgs.stdenv.cc.cc.lib pkgs.zlib ]}
            exec python3.13 scripts/specchat "$@"
          '';
        };
      });
    };
}
