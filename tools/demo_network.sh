#!/bin/sh
# Three organisations of atlas and a hub, as processes on this machine: from keys to the first report.
# usage: demo_network.sh FOLDER, with `fedkge` and `python` of one environment first on the path
set -eu
out=$1
sites="airline government languages"
rm -rf "$out"
mkdir -p "$out/keys" "$out/kits"
graphs=$(python -c "import fedkge, pathlib; print(pathlib.Path(fedkge.__file__).parent / 'graphs' / 'atlas')")
cd "$out"

echo "== keys"
port=$(python -c "import socket; s = socket.socket(); s.bind(('localhost', 0)); print(s.getsockname()[1])")
fedkge keys authority localhost --port "$port" --out authority
head -c 32 /dev/urandom > keys/sites.secret
for site in $sites; do
    fedkge keys request "$site" --out keys
    fedkge keys approve authority "keys/$site.csr" --out kits
done

echo "== files"
cat > hub.toml <<END
seed = 0
rounds = 6
sites = ["airline", "government", "languages"]
folder = "runs/hub"
authority = "authority"
model    = { name = "transe", dim = 32, margin = 8.0 }
method   = { name = "fedep" }
trainer  = { epochs = 1, batch_size = 512, negatives = 32, lr = 5e-3 }
evaluate = { every = 3, patience = 3 }
END
for site in $sites; do
    cat > "$site.toml" <<END
graph  = "$graphs/$site"
folder = "runs/$site"
kit    = "kits/$site.kit"
key    = "keys/$site.key"
align  = { secret = "keys/sites.secret" }
accept = { methods = ["fedep"], rounds = 10 }
END
done

echo "== run"
for site in $sites; do
    fedkge site "$site.toml" --device cpu &
done
fedkge hub hub.toml --device cpu
wait

echo "== report"
fedkge report runs/hub --out runs/hub/report.html
