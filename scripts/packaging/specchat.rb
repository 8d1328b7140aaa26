# A Homebrew formula: `brew install --build-from-source scripts/packaging/specchat.rb` from a clone.
# It builds llama.cpp, with Metal on macOS, and fetches Python packages from the package index.
class Specchat < Formula
  include Language::Python::Virtualenv

  desc "Terminal chat with lossless speculative decoding, on llama.cpp"
  license "MIT"
  head File.expand_path("../..", __dir__), using: :git, branch: "main"

  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "python@3.13"

  def install
    ENV["CMAKE_ARGS"] = "-DMTMD_VIDEO=OFF -DGGML_RPC=ON -DGGML_RPC_RDMA=OFF"
    # some virtual machines report AMX but do not support it
    if Hardware::CPU.intel?
      %w[CFLAGS CXXFLAGS].each do |name|
        ENV.append name, "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
      end
    end
    system "python3.13", "-m", "venv", libexec
    system libexec/"bin/pip", "install", "--no-binary", "llama-cpp-python", "#{buildpath}[pictures]"
    bin.install_symlink libexec/"bin/specchat"
  end

  test do
    question = "What is specchat?"
    answer = shell_output("#{bin}/specchat ask --offline --no-stdin --temperature 0 '#{question}'")
    assert_match "terminal chat", answer
  end
end
